// Weights on a GPU as FP8 blocks (kernels/fp8_block.h), compared with what they were before: one
// read of the weights, one of the old elements, and no quantised copy of them.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/memory.h"
#include "kernels/fp8_block.h"

namespace deltawire::cuda {

// Of a matrix on the device. What is null is not wanted.
struct Fp8Job {
  fp8::Matrix matrix;               // all of one call have the same `from`
  float* scales = nullptr;          // one for each block; never null
  const uint8_t* before = nullptr;  // old elements, in the order of rows
  // Bit c % 32 of word c / 32 of a row: whether the element of column c differs from `before`. Rows
  // have mask_words() words each.
  uint32_t* changed = nullptr;
  uint8_t* elements = nullptr;  // new ones; may be `before` itself

  constexpr uint64_t mask_words() const { return (matrix.columns + 31) / 32; }
};

// For each job, on the device; zero before.
struct Fp8Found {
  unsigned long long changed;    // elements
  unsigned long long unbounded;  // blocks with a NaN or an infinity: nothing of them is to be used
  unsigned long long sums[2];    // lanes of sum128 of the new elements, if they are asked for
};

// Device memory that a call needs until its stream has done the work.
size_t fp8_job_bytes(std::span<const Fp8Job> jobs) noexcept;

// Sums are of matrices that have whole words.
Status fp8_blocks(std::span<const Fp8Job> jobs, void* room, Fp8Found* found, Stream stream,
                  bool with_sums = false);

}  // namespace deltawire::cuda
