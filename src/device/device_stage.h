// Makes new values for arrays on a GPU: copies of live rows are patched and compared with them.
// Changes stay on the GPU. Uses its own stream, so other work continues.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "device/cuda.h"
#include "device/device_exchange.h"

namespace deltawire {

// Live rows and their contiguous copy, if there is one, in elements of `width` bytes.
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

// Several stagings in sequence: begin(); list(); for each wave copy(), apply() for each delta,
// collect(); then finish(). Memory is kept between stagings.
class DeviceStage {
 public:
  // InvalidArgument unless all arrays are on one GPU.
  static Result<DeviceStage> create(std::span<const void* const> arrays, uint64_t scratch_bytes,
                                    unsigned threads);
  // Unsupported if the arrays are on another device.
  Status begin(std::span<const void* const> arrays, const DeviceStageOptions& options);
  ~DeviceStage();
  DeviceStage(DeviceStage&&) noexcept;
  DeviceStage& operator=(DeviceStage&&) noexcept;

  uint8_t* copies() const noexcept;  // memory for copies, aligned to 256 bytes

  // Makes lists of what the patches, of `tight`, would change in live memory: in these rows, each
  // patch in less than 2^32 elements. Waits.
  Status list(std::span<const cuda::Patch> patches, std::span<const CopiedRows> rows);
  // Copies live rows. Does not wait.
  Status copy(std::span<const CopiedRows> rows);
  // Patches the copies, which are undefined after a failure. Waits.
  Status apply(std::span<const cuda::Patch> patches);
  // Makes lists of the differences between copies and live rows. Waits for the results.
  Status collect(std::span<const CopiedRows> rows);
  // Copies to host memory. Waits. Thread-safe.
  Status fetch(std::span<const CopiedRows> rows);

  uint64_t num_changed() const noexcept;
  // Makes an exchange of everything collected and of `lists`, which are in host memory and checked.
  // InvalidArgument if arrays share memory. The last call. Waits.
  Result<DeviceExchange> finish(std::span<const ExchangeList* const> lists);

  struct Impl;

 private:
  explicit DeviceStage(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
