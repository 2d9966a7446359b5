// sum128 of many arrays at once, in one pass at the speed of memory: no word waits for another.
#pragma once

#include <cstdint>

#include "kernels/cuda/diff.h"

namespace deltawire::cuda {

inline constexpr uint64_t kSumChunkBytes = 128 << 10;  // that a thread block adds up

// Where an array lies in its tensor: rows, all as long and as far from each other. In segments of
// 512 bytes.
struct SumPlace {
  uint64_t first = 0;
  uint64_t row = 0, pitch = 0;  // none: in one piece
};

struct SumArray {
  const void* data;
  uint64_t num_bytes;    // as they are hashed: of bf16 where wider floats are rounded
  uint64_t first_chunk;  // its chunks' among those of all arrays
  NewKind kind;
  SumPlace place;
  void* copy_to = nullptr;  // with SumPass::kCopy: where the hashed bytes go; 16-byte aligned
};

constexpr uint64_t num_sum_chunks(uint64_t num_bytes) {
  return (num_bytes + kSumChunkBytes - 1) / kSumChunkBytes;
}

enum class SumPass : uint8_t { kSum, kCopy };  // kCopy: writes what it adds up, too

// Adds to sums[2 * i] and sums[2 * i + 1], both lanes of array i. All pointers are to device
// memory; first_chunk ascends, and num_chunks is that of all arrays.
Status add_sums(const SumArray* arrays, uint32_t num_arrays, uint64_t num_chunks, uint64_t* sums,
                Stream stream, SumPass pass = SumPass::kSum);

}  // namespace deltawire::cuda
