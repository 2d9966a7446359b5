// Listed elements of live arrays, exchanged with values that were staged before: what an engine
// does in its pause. The second time it undoes the first, bit for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "deltawire/status.h"
#include "device/device_exchange.h"
#include "device/device_stage.h"

struct CUstream_st;

namespace deltawire {

struct ExchangeOptions {
  // Lists of arrays on a GPU take so much of its memory at most. Those that do not fit lie
  // in pinned host memory, and cross the bus in swap(). None: half of what is free.
  std::optional<uint64_t> device_bytes;
  unsigned threads = 0;  // for arrays in host memory; 0: one per core
};

// As ExchangeList, with memory of its own.
struct OwnedList {
  std::span<uint8_t> bytes;
  unsigned width = 2;
  Memory memory = Memory::kHost;
  std::vector<uint32_t> offsets;
  std::vector<uint8_t> values;
};

// Lists for any number of arrays, in host memory and on one GPU. One call at a time.
class Exchange {
 public:
  // Copies the lists; arrays are not looked at. InvalidArgument, naming the list and the offset:
  // one that is outside its array, does not ascend, or is an element of another list too. Waits.
  static Result<Exchange> stage(std::span<const ExchangeList> lists,
                                const ExchangeOptions& options = {});
  // The same of lists that it takes over: those of host arrays are not copied. With `on_device`,
  // which is finished: those that a GPU has made, too.
  static Result<Exchange> take(std::vector<OwnedList> lists, const ExchangeOptions& options = {},
                               DeviceStage* on_device = nullptr);
  ~Exchange();
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;

  // Writes the staged values and keeps what they replace; the next call puts that back. On a GPU in
  // few launches, after what `stream` has been given. Nobody else may write to the listed elements
  // between two calls that are to cancel out. Fails with Device alone, and then arrays on the GPU
  // hold anything. Waits.
  Status swap(CUstream_st* stream = nullptr);

  uint64_t num_changed() const noexcept;   // elements in all lists
  uint64_t device_bytes() const noexcept;  // that the lists take: of the GPU's memory,
  uint64_t host_bytes() const noexcept;    // of the host's

 private:
  struct Impl;
  explicit Exchange(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
