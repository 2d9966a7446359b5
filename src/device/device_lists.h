// Lists of an exchange in memory that a GPU can reach.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/device_exchange.h"
#include "kernels/cuda/exchange.h"

namespace deltawire {

// Offsets and values are aligned to 16 bytes.
inline constexpr uint64_t aligned_list(uint64_t bytes) { return (bytes + 15) / 16 * 16; }
inline constexpr uint64_t list_room(uint64_t count, unsigned width) {
  return aligned_list(count * sizeof(uint32_t)) + aligned_list(count * width);
}

// The one device that all arrays are on. InvalidArgument if they are on several, or on none.
Result<int> device_of_all(std::span<const void* const> arrays);

// Device memory of lists that are done with, for the next ones: to allocate and to free make every
// stream of the device wait.
struct SpareBlock {
  std::mutex mutex;
  cuda::Buffer block;

  void give(cuda::Buffer done) {
    const std::lock_guard lock(mutex);
    if (done.size() > block.size()) block = std::move(done);
  }
  cuda::Buffer take(uint64_t at_least) {
    const std::lock_guard lock(mutex);
    return block.size() < at_least ? cuda::Buffer() : std::exchange(block, cuda::Buffer());
  }
};

struct DeviceLists {
  std::shared_ptr<SpareBlock> spare = {};  // null: memory is freed
  std::vector<cuda::Buffer> memory = {};
  uint64_t device_bytes = 0, pinned_bytes = 0;
  std::vector<cuda::SwapList> swaps = {};

  DeviceLists() = default;
  ~DeviceLists();
  DeviceLists(DeviceLists&&) noexcept = default;
  DeviceLists& operator=(DeviceLists&&) noexcept = default;

  // A block of memory for lists, of at least that size.
  Result<std::span<uint8_t>> allocate(cuda::Place place, uint64_t num_bytes);
  // Copies sound lists, to the device until device_bytes would exceed the limit.
  Status copy(std::span<const ExchangeList* const> lists, uint64_t most_device_bytes,
              cuda::Stream stream);
};

}  // namespace deltawire
