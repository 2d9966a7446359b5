// Arrays that are made on a device for a while: the room for them, and what makes some of them. A
// build without CUDA says Unsupported.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "deltawire/cuda.h"
#include "deltawire/store.h"
#include "kernels/fp8_block.h"

namespace deltawire::cuda {

// Memory of a context's device, used again and again. It only grows.
class DeviceRoom {
 public:
  // What it held is gone. No stream may still work on it.
  Status reserve(const Context& context, uint64_t num_bytes);
  uint8_t* data() const noexcept { return memory_.get(); }
  uint64_t size() const noexcept { return size_; }

 private:
  std::shared_ptr<uint8_t> memory_;
  uint64_t size_ = 0;
};

// Within a device. Waits.
Status copy_there(void* to, const void* from, uint64_t num_bytes, Stream stream);

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

// The elements as a body, for publishers, which make them many at a time.
class Fp8Made final : public Body {
 public:
  // `owner` keeps weights and scales alive.
  Fp8Made(const Fp8Weights& weights, std::shared_ptr<const void> owner)
      : weights_(weights), owner_(std::move(owner)) {}
  uint64_t size() const noexcept override { return weights_.num_elements(); }
  // All of it, to memory of the device.
  Status read(uint64_t offset, MutableBytes out) const override;
  const Fp8Weights& weights() const noexcept { return weights_; }

 private:
  const Fp8Weights weights_;
  const std::shared_ptr<const void> owner_;
};

}  // namespace deltawire::cuda
