#include "codec/tight_payload.h"

#include <algorithm>
#include <bit>

#include "base/guard.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/elements.h"
#include "codec/leb128.h"
#include "codec/tight_decode.h"
#include "digest/parallel.h"
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
    const uint32_t mean = mean_count(model.mean_codes[c], n, model.block_log2);
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
      return "a class has more changes than the block elements";
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
  const size_t num_blocks = num_blocks_of(n, parsed.model.block_log2);
  Bytes rest = payload.subspan(consumed);
  if (rest.size() < num_blocks) {  // a length takes a byte at least
    return bad_payload("tight directory: blocks", num_blocks, rest.size());
  }
  std::vector<uint64_t> lengths(num_blocks);
  uint64_t total = 0;
  for (uint64_t& length : lengths) {
    DW_RETURN_IF_ERROR(take_leb128("tight directory", &rest, &length));
    if (length > payload.size())
      return bad_payload("tight directory: block length", payload.size(), length);
    total += length;
  }
  if (total != rest.size())
    return bad_payload("tight directory: bytes of all blocks", rest.size(), total);
  if (total == 0) return bad_payload("tight payload", "at least one change", "none");
  parsed.blocks.reserve(num_blocks);
  for (const uint64_t length : lengths) {
    parsed.blocks.push_back(rest.first(size_t(length)));
    rest = rest.subspan(size_t(length));
  }
  return parsed;
}

namespace {

struct Parsed {
  std::unique_ptr<Coder> coder = std::make_unique<Coder>();
  std::vector<Bytes> blocks;
};

Result<Parsed> parse(Layout layout, Bytes payload, size_t n) {
  DW_ASSIGN_OR_RETURN(Payload split, split_payload(layout, payload, n));
  Parsed parsed;
  parsed.coder->build(split.model, layout.width);
  parsed.blocks = std::move(split.blocks);
  return parsed;
}

template <class T>
Status apply_blocks(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool,
                    Hasher* hasher) {
  const size_t n = data.size() / sizeof(T);
  DW_ASSIGN_OR_RETURN(const Parsed parsed, parse(layout, payload, n));
  const size_t block_elements = size_t{1} << parsed.coder->model.block_log2;
  const BlockRanges ranges(parsed.blocks.size(), pool);
  return parallel_try("decoding", pool, ranges.count, [&](size_t range, unsigned) -> Status {
    DecodeScratch& scratch = thread_scratch<DecodeScratch>();
    const size_t end = std::min(ranges.num_blocks, (range + 1) * ranges.length);
    const uint8_t* data_end = data.data() + std::min(n, end * block_elements) * sizeof(T);
    for (size_t block = range * ranges.length; block < end; ++block) {
      const size_t start = block * block_elements;
      uint8_t* const own = data.data() + start * sizeof(T);
      DW_RETURN_IF_ERROR(decode_block(sizeof(T))(*parsed.coder, parsed.blocks[block], own,
                                                 std::min(block_elements, n - start), data_end,
                                                 &scratch)
                             .at("block " + std::to_string(block)));
      kernels().scatter[width_index(sizeof(T))](own, scratch.positions.data(),
                                                scratch.values.data(), scratch.count);
      if (hasher != nullptr) {
        const size_t at = start * sizeof(T);
        hasher->update_at(data.subspan(at, std::min(block_elements, n - start) * sizeof(T)), at);
      }
    }
    return {};
  });
}

// The changes of a block lie by class; a mark per element puts them in the order of the array.
template <class T>
void put_in_order(const DecodeScratch& scratch, size_t n, ChunkChanges* out) {
  static thread_local std::vector<uint64_t> all_marks;
  static thread_local std::vector<T> all_values;
  const size_t num_words = (n + 63) / 64;
  all_marks.assign(num_words, 0);
  if (all_values.size() < n) all_values.resize(n);
  out->positions.resize(scratch.count);
  out->values.resize(scratch.count * sizeof(T));
  // Plain pointers: what is written must not make the compiler look them up again.
  uint64_t* const marks = all_marks.data();
  T* const values = all_values.data();
  const uint32_t* const positions = scratch.positions.data();
  const uint8_t* const found = scratch.values.data();
  for (uint32_t i = 0, count = scratch.count; i < count; ++i) {
    const uint32_t position = positions[i];
    marks[position / 64] |= uint64_t{1} << position % 64;
    values[position] = load_le<T>(found + i * sizeof(T));
  }
  uint32_t* to = out->positions.data();
  uint8_t* value_to = out->values.data();
  for (size_t word = 0; word < num_words; ++word) {
    for (uint64_t left = marks[word]; left != 0; left &= left - 1) {
      const uint32_t position = uint32_t(word * 64) + uint32_t(std::countr_zero(left));
      *to++ = position;
      store_le(value_to, values[position]);
      value_to += sizeof(T);
    }
  }
}

template <class T>
Result<Changes> decode_blocks(Layout layout, Bytes payload, Bytes old_bytes, ThreadPool* pool,
                              SharedSums* sums) {
  const size_t n = old_bytes.size() / sizeof(T);
  DW_ASSIGN_OR_RETURN(const Parsed parsed, parse(layout, payload, n));
  const size_t block_elements = size_t{1} << parsed.coder->model.block_log2;
  std::vector<ChunkChanges> chunks(parsed.blocks.size());
  const BlockRanges ranges(parsed.blocks.size(), pool);
  DW_RETURN_IF_ERROR(
      parallel_try("decoding", pool, ranges.count, [&](size_t range, unsigned) -> Status {
        DecodeScratch& scratch = thread_scratch<DecodeScratch>();
        const size_t end = std::min(ranges.num_blocks, (range + 1) * ranges.length);
        const uint8_t* data_end = old_bytes.data() + std::min(n, end * block_elements) * sizeof(T);
        for (size_t block = range * ranges.length; block < end; ++block) {
          const size_t start = block * block_elements;
          const size_t length = std::min(block_elements, n - start);
          DW_RETURN_IF_ERROR(decode_block(sizeof(T))(*parsed.coder, parsed.blocks[block],
                                                     old_bytes.data() + start * sizeof(T), length,
                                                     data_end, &scratch)
                                 .at("block " + std::to_string(block)));
          if (sums != nullptr) {
            sums->add(old_bytes.subspan(start * sizeof(T), length * sizeof(T)), start * sizeof(T));
          }
          chunks[block].base = start;
          put_in_order<T>(scratch, length, &chunks[block]);
        }
        return {};
      }));
  return join_chunks(sizeof(T), std::move(chunks), pool);
}

}  // namespace

Status apply_payload(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool,
                     Hasher* patched) {
  return with_element(layout.width, [&](auto element) {
    return apply_blocks<decltype(element)>(layout, payload, data, pool, patched);
  });
}

Result<Changes> decode_payload(Layout layout, Bytes payload, Bytes old_bytes, ThreadPool* pool,
                               SharedSums* sums) {
  return with_element(layout.width, [&](auto element) {
    return decode_blocks<decltype(element)>(layout, payload, old_bytes, pool, sums);
  });
}

}  // namespace deltawire::tight
