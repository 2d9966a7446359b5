#include "codec/cuda/tight_payloads.h"

#include <algorithm>
#include <cstring>

#include "codec/leb128.h"
#include "codec/tight_payload.h"
#include "digest/sums.h"

namespace deltawire::cuda {
namespace {

// Arrays seldom wait for more than two or three pieces. Where they do, the oldest bytes move to
// plain memory: pinned memory is taken from the whole machine.
constexpr size_t kMaxPinned = 8;
constexpr size_t kSlice = size_t{1} << 18;

}  // namespace

TightPayloads::TightPayloads(std::span<const DevicePair> pairs,
                             const std::vector<tight::Model>& models, const DeviceOptions& options)
    : models_(models),
      workspace_(*options.workspace),
      pool_(options.pool),
      width_(pairs[0].layout.width),
      new_digests_(options.new_digests),
      spare_(options.spare),
      arrays_(pairs.size()),
      out_(pairs.size()) {
  for (size_t i = 0; i < pairs.size(); ++i) {
    arrays_[i].num_missing = tiling_of(pairs[i]).size();
    arrays_[i].blocks.resize(arrays_[i].num_missing);
    arrays_[i].size_bytes = pairs[i].num_elements * width_;
  }
  for (size_t i = kMaxPinned; i-- > 0;) free_.push_back(i);
}

void TightPayloads::make_room() {
  Piece& piece = pieces_[in_use_.front()];
  in_use_.pop_front();
  // Fresh memory: its pages come as it is written, faster from many threads.
  piece.own = std::make_unique_for_overwrite<uint8_t[]>(piece.size);
  parallel_for(pool_, (piece.size + kSlice - 1) / kSlice, [&](size_t i, unsigned) {
    std::memcpy(piece.own.get() + i * kSlice, piece.bytes + i * kSlice,
                std::min(kSlice, piece.size - i * kSlice));
  });
  piece.bytes = piece.own.get();
  free_.push_back(piece.pinned);
}

Result<uint8_t*> TightPayloads::make_piece(size_t num_bytes) {
  if (free_.empty()) make_room();
  const size_t pinned = free_.back();
  DW_ASSIGN_OR_RETURN(uint8_t* const bytes, workspace_.host_piece(pinned, num_bytes));
  free_.pop_back();
  in_use_.push_back(pieces_.size());
  pieces_.push_back({bytes, num_bytes, pinned, 0, nullptr});
  return bytes;
}

void TightPayloads::add(const BlockName& name, uint64_t offset, const TightEncodeResult& result) {
  Array& array = arrays_[name.array];
  array.blocks[name.number] = {pieces_.size() - 1, offset, result.num_bytes, result.total};
  for (size_t lane = 0; lane < array.sums.size(); ++lane) array.sums[lane] += result.sums[lane];
  ++pieces_.back().num_waiting;
  if (--array.num_missing == 0) complete_.push_back(name.array);
}

DeviceEncoded TightPayloads::write(size_t array) const {
  const std::vector<Block>& blocks = arrays_[array].blocks;
  DeviceEncoded out;
  if (new_digests_) out.new_digest = finish_sums(arrays_[array].sums, arrays_[array].size_bytes);
  uint64_t size = 0;
  for (const Block& block : blocks) {
    out.num_changed += block.num_changed;
    size += block.num_bytes;
  }
  if (out.num_changed == 0) return out;
  const std::vector<uint8_t> head = tight::write_model(models_[array], width_);
  const size_t most = head.size() + 3 * blocks.size() + size;
  if (spare_ != nullptr) out.payload = spare_->take(most);
  out.payload.reserve(most);
  out.payload.assign(head.begin(), head.end());
  for (const Block& block : blocks) put_leb128(block.num_bytes, &out.payload);
  for (const Block& block : blocks) {
    const uint8_t* const at = pieces_[block.piece].bytes + block.offset;
    out.payload.insert(out.payload.end(), at, at + block.num_bytes);
  }
  return out;
}

void TightPayloads::write_complete() {
  if (complete_.empty()) return;
  parallel_for(pool_, complete_.size(),
               [&](size_t i, unsigned) { out_[complete_[i]] = write(complete_[i]); });
  for (const size_t array : complete_) {
    for (const Block& block : arrays_[array].blocks) --pieces_[block.piece].num_waiting;
    arrays_[array].blocks = {};
  }
  complete_.clear();
  std::erase_if(in_use_, [&](size_t number) {
    if (pieces_[number].num_waiting != 0) return false;
    free_.push_back(pieces_[number].pinned);
    return true;
  });
  for (Piece& piece : pieces_) {
    if (piece.num_waiting == 0) piece.own.reset();
  }
}

}  // namespace deltawire::cuda
