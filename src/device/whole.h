// Whole arrays on a device as `exponents`, for streaming: planned once, then coded in groups of
// blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "codec/exponents.h"
#include "device/cuda.h"

namespace deltawire::cuda {

// Temporary device memory. A build without CUDA returns Unsupported.

// Reusable memory on a context's device, or pinned memory of the host. It only grows.
class DeviceBuffer {
 public:
  // Discards the old contents. No stream may be using it.
  Status reserve(const Context& context, uint64_t num_bytes, bool pinned = false);
  uint8_t* data() const noexcept { return memory_.get(); }
  uint64_t size() const noexcept { return size_; }

 private:
  std::shared_ptr<uint8_t> memory_;
  uint64_t size_ = 0;
};

// Copies within a device. Waits.
Status copy_there(void* to, const void* from, uint64_t num_bytes, Stream stream);

// Plans every block of the array. Waits.
Result<std::vector<exponents::BlockPlan>> plan_whole_array(const Context& context,
                                                           const Contents& contents, Stream stream);
// Codes blocks from `first` on, one for each plan, into `out`, pinned memory of their size. Io if
// the weights have changed since the plan. Waits.
Status code_whole_array(const Context& context, const Contents& contents, size_t first,
                        std::span<const exponents::BlockPlan> plans, MutableBytes out,
                        Stream stream);

}  // namespace deltawire::cuda
