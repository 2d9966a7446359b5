// Whole arrays of a device in `exponents`, for what streams them: planned once, then coded as many
// blocks at a time as somebody asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "codec/exponents.h"
#include "device/cuda.h"

namespace deltawire::cuda {

// Room on a device for arrays that are made for a while. A build without CUDA says Unsupported.

// Memory of a context's device, used again and again. It only grows.
class DeviceBuffer {
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

// Of every block of the array; a build without CUDA says Unsupported. Waits.
Result<std::vector<exponents::BlockPlan>> plan_whole_array(const Context& context,
                                                           const Contents& contents, Stream stream);
// Blocks from `first` on, as many as there are plans, one after the other, to `out`, which has
// their size. Io if the weights are not those that were planned. Waits.
Status code_whole_array(const Context& context, const Contents& contents, size_t first,
                        std::span<const exponents::BlockPlan> plans, MutableBytes out,
                        Stream stream);

}  // namespace deltawire::cuda
