// New values for arrays on a GPU, made there: copies of live rows are patched, then compared with
// them. Changes never come to the host. On a stream of its own: what others compute goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "device/cuda.h"
#include "device/device_exchange.h"

namespace deltawire {

// Live rows and their copy, whose rows follow each other; in elements of `width` bytes.
struct CopiedRows {
  uint8_t* live;
  uint8_t* copy;
  uint64_t rows, columns, stride;  // the stride is that of the live rows
  unsigned width;

  uint64_t size_bytes() const { return rows * columns * width; }
};

struct DeviceStageOptions {
  uint64_t copy_bytes = 0;                  // of the largest wave
  uint64_t total_bytes = 0;                 // of all waves
  std::optional<uint64_t> most_list_bytes;  // as ExchangeOptions::device_bytes
};

// Stagings, one after the other: begin(); then waves, one after the other: copy(), apply() for each
// delta, collect(); finish(). Memory is kept from one to the next.
class DeviceStage {
 public:
  // InvalidArgument unless all arrays are on one GPU.
  static Result<DeviceStage> create(std::span<const void* const> arrays, uint64_t scratch_bytes,
                                    unsigned threads);
  // Of its device; Unsupported for arrays on another one.
  Status begin(std::span<const void* const> arrays, const DeviceStageOptions& options);
  ~DeviceStage();
  DeviceStage(DeviceStage&&) noexcept;
  DeviceStage& operator=(DeviceStage&&) noexcept;

  uint8_t* copies() const noexcept;  // memory for copies, aligned to 256 bytes

  // Live rows to their copies. Does not wait.
  Status copy(std::span<const CopiedRows> rows);
  // Onto copies, which hold anything after a failure. Waits.
  Status apply(std::span<const cuda::Patch> patches);
  // Lists where copies differ from live rows. Waits for what was found.
  Status collect(std::span<const CopiedRows> rows);
  // Copies are host memory. Waits. From any thread.
  Status fetch(std::span<const CopiedRows> rows);

  uint64_t num_changed() const noexcept;
  // All that was collected, and lists from host memory, which are sound. InvalidArgument if arrays
  // share memory. Last. Waits.
  Result<DeviceExchange> finish(std::span<const ExchangeList* const> lists);

  struct Impl;

 private:
  explicit DeviceStage(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
