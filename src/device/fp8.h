// Matrices on a device as FP8 blocks. One pass over the weights gives scales, elements, digests and
// marks of changed elements. A build without CUDA returns Unsupported.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/cuda.h"
#include "kernels/fp8_block.h"
#include "kernels/group_codes.h"

namespace deltawire::cuda {

// A matrix on a device, and the scales of its FP8 blocks, which every pass computes.
struct Fp8Weights {
  fp8::Matrix matrix;
  float* scales = nullptr;

  uint64_t num_elements() const { return matrix.rows * matrix.columns; }
};

// What to compute in a pass, in addition to the scales; null: skip.
struct Fp8Task {
  Fp8Weights weights;
  const uint8_t* before = nullptr;  // old elements
  uint32_t* changed = nullptr;      // one bit per element; needs `before`
  uint8_t* elements = nullptr;      // may equal `before`
};

struct Fp8Outcome {
  bool bounded = true;  // false: a weight is NaN or infinite, and the results must not be used
  uint64_t changed = 0;
  std::optional<Digest> digest;  // sum128 of the elements
};

enum class Fp8Digests : bool { kNone, kSum128 };
// Whether encoders accept marks of the matrix: no word may span two rows, and there must be several
// blocks.
bool has_marks(const Fp8Weights& weights) noexcept;

// One pass over all matrices. Digests need matrices of whole words. Waits.
Result<std::vector<Fp8Outcome>> quantise_fp8(std::span<const Fp8Task> tasks, Fp8Digests digests,
                                             Stream stream);
// Writes descriptions of the marked tasks to device memory, for encoders. Waits.
Status mark_fp8(std::span<const Fp8Task> tasks, MarkedFp8* out, Stream stream);
// The size of `count` descriptions.
uint64_t marked_bytes(size_t count) noexcept;

// Quantises groups of weights to small codes. A build without CUDA returns Unsupported.

// Does not wait.
Status make_group_codes(const GroupJob& job, Stream stream);

}  // namespace deltawire::cuda
