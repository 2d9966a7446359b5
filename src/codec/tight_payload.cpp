#include "codec/tight_payload.h"

#include <algorithm>
#include <bit>

#include "codec/checks.h"
#include "codec/tight_decode.h"
#include "kernels/kernels.h"

namespace deltawire::tight {
namespace {

bool read_count(BitReader* bits, const Model& model, int c, size_t n, uint32_t* count) {
  const unsigned ones = unsigned(std::countr_one(bits->peek()));
  if (!model.fitted) {
    if (ones > kMaxBlockLog2) return false;
    bits->skip(ones + 1);
    *count = uint32_t((uint64_t{1} << ones) + bits->get(ones) - 1);
  } else if (ones < kRiceLimit) {
    const uint32_t mean = mean_count(model.mean_codes[c], n, model.tiles.block_log2);
    const unsigned low_bits = rice_bits(mean);
    bits->skip(ones + 1);
    const uint32_t folded = uint32_t(ones) << low_bits | uint32_t(bits->get(low_bits));
    *count = (folded & 1) != 0 ? mean - (folded + 1) / 2 : mean + folded / 2;
  } else {
    bits->skip(kRiceLimit);
    *count = uint32_t(bits->get(kMaxBlockLog2 + 1));
  }
  return *count <= n;
}

}  // namespace

const char* read_block_head(const Model& model, size_t n, BitReader* in, BlockHead* head) {
  const int num_classes = model.split.num_classes;
  head->unit_classes = uint32_t(in->get(unsigned(num_classes)));
  uint32_t total = 0;
  for (int c = 0; c < int(kMaxClasses); ++c) {
    uint32_t count = 0;
    if (c < num_classes && !read_count(in, model, c, n, &count)) {
      return "a class has more changes than the block has elements";
    }
    head->end[c] = total += count;
    if (total > n) return "more changes than elements";
  }
  return total == 0 ? "present, yet without changes" : nullptr;
}

Result<Payload> split_payload(Layout layout, Bytes payload, size_t n) {
  size_t consumed = 0;
  Payload parsed;
  DW_ASSIGN_OR_RETURN(parsed.model, read_model(layout, payload, &consumed));
  const TileShape shape = parsed.model.tiles;
  if (!tiles_fit(shape, layout, n)) {
    return bad_payload("tight model", "blocks of elements in order",
                       "tiles of an array that is not a matrix");
  }
  DW_ASSIGN_OR_RETURN(parsed.blocks, take_directory("tight", payload.subspan(consumed),
                                                    Tiling(shape, layout, n).size()));
  return parsed;
}

Result<std::vector<ByteRange>> wanted_bytes(Layout layout, size_t n, Bytes front,
                                            uint64_t payload_bytes, const RegionSet& held,
                                            uint64_t gap) {
  size_t consumed = 0;
  DW_ASSIGN_OR_RETURN(const Model model, read_model(layout, front, &consumed));
  std::vector<ByteRange> ranges;
  if (!model.tiles.tiled() || !tiles_fit(model.tiles, layout, n)) {
    ranges.push_back({0, payload_bytes});
    return ranges;
  }
  const Tiling tiling(model.tiles, layout, n);
  if (consumed > payload_bytes) return bad_payload("tight model: bytes", payload_bytes, consumed);
  Bytes rest = front.subspan(std::min(consumed, front.size()));
  Result<std::vector<uint64_t>> lengths_or =
      take_lengths("tight", tiling.size(), payload_bytes - consumed, &rest);
  if (!lengths_or.ok()) {
    if (front.size() >= payload_bytes) return std::move(lengths_or).status();
    ranges.push_back({0, payload_bytes});  // a directory longer than ours would be
    return ranges;
  }
  const std::vector<uint64_t>& lengths = *lengths_or;
  uint64_t at = front.size() - rest.size();
  ranges.push_back({0, at});
  for (size_t i = 0; i < lengths.size(); at += lengths[i++]) {
    if (lengths[i] == 0 || !held.touches(tiling[i])) continue;
    ByteRange& last = ranges.back();
    if (at - (last.offset + last.size) < gap || at == last.offset + last.size) {
      last.size = at + lengths[i] - last.offset;
    } else {
      ranges.push_back({at, lengths[i]});
    }
  }
  return ranges;
}

}  // namespace deltawire::tight
