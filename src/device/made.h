// Room on a device for arrays that are made for a while. A build without CUDA says Unsupported.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cuda.h"

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

}  // namespace deltawire::cuda
