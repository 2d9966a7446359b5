#include "device/slot_memory.h"

#include "codec/cuda/device_parts.h"

namespace deltawire::cuda {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{64} << 20;
constexpr uint64_t kOwnChunkBytes = uint64_t{8}
                                    << 20;  // is allocated by itself: chunks have no room

}  // namespace

// A piece that came back is used again for one of its size: models change their tensors' contents,
// not their shapes.
uint8_t* SlotMemory::Chunk::cut(uint64_t num_bytes) {
  uint64_t at = used;
  if (const auto found = free.find(num_bytes); found != free.end()) {
    at = found->second;
    free.erase(found);
  } else if (buffer.size() - used >= num_bytes) {
    used += num_bytes;
  } else {
    return nullptr;
  }
  ++alive;
  return buffer.data() + at;
}

Result<uint8_t*> SlotMemory::take(uint64_t num_bytes) {
  if (num_bytes == 0) return static_cast<uint8_t*>(nullptr);
  num_bytes = carved_bytes(num_bytes);
  for (Chunk& chunk : chunks_) {
    if (uint8_t* const piece = chunk.cut(num_bytes)) return piece;
  }
  Chunk chunk;
  const uint64_t chunk_bytes = num_bytes >= kOwnChunkBytes ? num_bytes : kChunkBytes;
  DW_ASSIGN_OR_RETURN(chunk.buffer, Buffer::allocate(place_, chunk_bytes));
  num_bytes_ += chunk.buffer.size();
  chunks_.push_back(std::move(chunk));
  return chunks_.back().cut(num_bytes);
}

void SlotMemory::give_back(const uint8_t* piece, uint64_t num_bytes) noexcept {
  if (piece == nullptr) return;
  for (auto chunk = chunks_.begin(); chunk != chunks_.end(); ++chunk) {
    const uint8_t* const begin = chunk->buffer.data();
    if (piece < begin || piece >= begin + chunk->buffer.size()) continue;
    chunk->free.emplace(carved_bytes(num_bytes), uint64_t(piece - begin));
    if (--chunk->alive == 0) {
      num_bytes_ -= chunk->buffer.size();
      chunks_.erase(chunk);
    }
    return;
  }
}

}  // namespace deltawire::cuda
