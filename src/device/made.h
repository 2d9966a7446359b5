// Arrays that are made on a device for a while: the room for them, and what makes some of them. A
// build without CUDA says Unsupported.
#pragma once

#include <cstdint>
#include <memory>

#include "deltawire/cuda.h"
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

// FP8 blocks of a matrix on a device: one look at it gives all scales and, unless null, all
// elements, both on that device. False: some weight is a NaN or infinite. Waits.
Result<bool> quantise_fp8(const fp8::Matrix& matrix, float* scales, uint8_t* elements,
                          Stream stream);

}  // namespace deltawire::cuda
