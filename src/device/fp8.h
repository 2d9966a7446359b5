// Matrices on a device as FP8 blocks: scales, elements, digests and marks of what has changed, all
// from one look at the weights. A build without CUDA says Unsupported.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/cuda.h"
#include "kernels/fp8_block.h"
#include "kernels/group_codes.h"

namespace deltawire::cuda {

// A matrix on a device, and the scales of its FP8 blocks, which are filled whenever it is looked
// at.
struct Fp8Weights {
  fp8::Matrix matrix;
  float* scales = nullptr;

  uint64_t num_elements() const { return matrix.rows * matrix.columns; }
};

// What is wanted of one look at a matrix, beside its scales; null: not.
struct Fp8Task {
  Fp8Weights weights;
  const uint8_t* before = nullptr;  // old elements
  uint32_t* changed = nullptr;      // unless `before` is null: a bit for each element
  uint8_t* elements = nullptr;      // may be `before`
};

struct Fp8Outcome {
  bool bounded = true;  // false: some weight is a NaN or infinite, and nothing is to be used
  uint64_t changed = 0;
  std::optional<Digest> digest;  // sum128 of the elements
};

enum class Fp8Digests : bool { kNone, kSum128 };
// Encoders take marks of such a matrix: words must not lie in two rows, nor elements in one block.
bool has_marks(const Fp8Weights& weights) noexcept;

// One look at all of them. Digests are of matrices that have whole words. Waits.
Result<std::vector<Fp8Outcome>> quantise_fp8(std::span<const Fp8Task> tasks, Fp8Digests digests,
                                             Stream stream);
// For encoders, to memory on the device: what is known of tasks with marks. Waits.
Status mark_fp8(std::span<const Fp8Task> tasks, MarkedFp8* out, Stream stream);
// Bytes of so many of them.
uint64_t marked_bytes(size_t count) noexcept;

// Groups of weights on a device as small codes. A build without CUDA says Unsupported.

// Does not wait.
Status make_group_codes(const GroupJob& job, Stream stream);

}  // namespace deltawire::cuda
