// Exchanges listed elements of live arrays with values that were staged before. An engine does this
// during its pause. A second exchange restores the old values bit for bit.
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
  // Lists of GPU arrays take at most this much GPU memory. The others are kept in pinned host
  // memory and cross the bus in swap(). None: half of the free memory.
  std::optional<uint64_t> device_bytes;
  unsigned threads = 0;  // for arrays in host memory; 0: one per core
};

// Like ExchangeList, but owns its lists.
struct OwnedList {
  std::span<uint8_t> bytes;
  unsigned width = 2;
  Memory memory = Memory::kHost;
  std::vector<uint32_t> offsets;
  std::vector<uint8_t> values;
};

// Lists for any number of arrays in host memory and on one GPU. One call at a time.
class Exchange {
 public:
  // Copies the lists without reading the arrays. InvalidArgument, naming list and offset, if an
  // offset is outside the array, is not ascending, or is in another list too. Waits.
  static Result<Exchange> stage(std::span<const ExchangeList> lists,
                                const ExchangeOptions& options = {});
  // The same, but takes ownership: lists of host arrays are not copied. `on_device`: also includes
  // the lists that a GPU has made, and finishes that stage.
  static Result<Exchange> take(std::vector<OwnedList> lists, const ExchangeOptions& options = {},
                               DeviceStage* on_device = nullptr);
  ~Exchange();
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;

  // Writes the staged values and keeps the replaced ones; the next call swaps them back. On a GPU
  // this takes few launches, after earlier work on `stream`. Nobody else may write to the listed
  // elements between a call and its undo. Can only fail with Device; the arrays on the GPU are then
  // undefined. Waits.
  Status swap(CUstream_st* stream = nullptr);

  uint64_t num_changed() const noexcept;   // elements in all lists
  uint64_t device_bytes() const noexcept;  // GPU memory of the lists
  uint64_t host_bytes() const noexcept;    // host memory of the lists

 private:
  struct Impl;
  explicit Exchange(std::unique_ptr<Impl> impl);
  static Result<Exchange> make(std::unique_ptr<Impl> impl,
                               std::span<const ExchangeList* const> device,
                               const ExchangeOptions& options, DeviceStage* on_device);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
