// sum128 of many arrays at once, in one pass at the speed of memory: no word waits for another.
#pragma once

#include <cstdint>

#include "kernels/cuda/diff.h"

namespace deltawire::cuda {

inline constexpr uint64_t kSumChunkBytes = 128 << 10;  // that a thread block adds up

struct SumArray {
  const void* data;
  uint64_t num_bytes;    // as they are hashed: of bf16 where wider floats are rounded
  uint64_t first_chunk;  // its chunks' among those of all arrays
  NewKind kind;
};

constexpr uint64_t num_sum_chunks(uint64_t num_bytes) {
  return (num_bytes + kSumChunkBytes - 1) / kSumChunkBytes;
}

// Adds to sums[2 * i] and sums[2 * i + 1], both lanes of array i. All pointers are to device
// memory; first_chunk ascends, and num_chunks is that of all arrays.
Status add_sums(const SumArray* arrays, uint32_t num_arrays, uint64_t num_chunks, uint64_t* sums,
                Stream stream);

}  // namespace deltawire::cuda
