// Finding the changes between two arrays, and writing changes into one. Both work in parallel over
// pieces whose borders do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/codec.h"

namespace deltawire {

// Elements per piece of a collection. Not written to disk.
inline constexpr size_t kChunkElements = 262144;

// The changes of one chunk of an array. Positions count from the chunk's start, so that they need
// half the memory of absolute ones; a chunk holds fewer than 2^32 elements.
struct ChunkChanges {
  uint64_t base = 0;  // the chunk's first element, counted in the array
  std::vector<uint32_t> positions;
  std::vector<uint8_t> values;
};

// Puts what differs between the equally long arrays `old_bytes` and `new_bytes` into *out, in place
// of its positions and values; the base is left alone.
void collect_chunk(unsigned width, Bytes old_bytes, Bytes new_bytes, ChunkChanges* out);

// A whole array, kChunkElements to a chunk.
Result<std::vector<ChunkChanges>> collect_chunks(unsigned width, Bytes old_bytes, Bytes new_bytes,
                                                 ThreadPool* pool);
uint64_t count_changes(const std::vector<ChunkChanges>& chunks) noexcept;

// One list of absolute changes. Each chunk's memory is given back once it is copied.
Result<Changes> join_chunks(unsigned width, std::vector<ChunkChanges> chunks, ThreadPool* pool);

Result<Changes> collect_changes(unsigned width, Bytes old_bytes, Bytes new_bytes, ThreadPool* pool);

// How many elements differ; n elements of `width` bytes each.
uint64_t count_different(unsigned width, const uint8_t* a, const uint8_t* b, size_t n) noexcept;

// Writes `changes` into `data`. Checks first that there is a value for each position and that the
// positions ascend inside the array; otherwise Corruption, and nothing is written.
Status scatter_changes(unsigned width, const Changes& changes, MutableBytes data, ThreadPool* pool);

// Changes are read and written by several threads, one block of them at a time. Not on disk.

// So many that handing a block out costs nothing, so few that the gaps of a block, 4 bytes each,
// cannot sum up to 2^64.
inline constexpr size_t kBlockChanges = 65536;

struct ChangeBlock {
  size_t begin = 0;
  size_t end = 0;
};

inline size_t num_change_blocks(uint64_t count) {
  return size_t((count + kBlockChanges - 1) / kBlockChanges);
}

inline ChangeBlock change_block(size_t index, uint64_t count) {
  const size_t begin = index * kBlockChanges;
  return {begin, size_t(std::min<uint64_t>(begin + kBlockChanges, count))};
}

}  // namespace deltawire
