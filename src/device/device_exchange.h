// The lists of an exchange (live/exchange.h) for arrays on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "deltawire/status.h"
#include "deltawire/tensor.h"

struct CUstream_st;

namespace deltawire {

// Some elements of one array, and what they are to become.
struct ExchangeList {
  // The array, which the caller owns and which outlives the exchange. Of any alignment.
  std::span<uint8_t> bytes;
  unsigned width = 2;  // bytes of an element: 1, 2, 4 or 8
  Memory memory = Memory::kHost;
  // Both in host memory, and copied: elements of the array, strictly ascending, and as many values.
  std::span<const uint32_t> offsets;
  std::span<const uint8_t> values;
};

struct DeviceLists;  // device/device_lists.h

class DeviceExchange {
 public:
  // Of sound lists, all of them for arrays on a GPU. InvalidArgument unless it is one GPU.
  static Result<DeviceExchange> stage(std::span<const ExchangeList* const> lists,
                                      std::optional<uint64_t> most_device_bytes);
  // Of lists that are there, on the device in use. Waits for `stream`, which wrote them.
  static Result<DeviceExchange> of(int device, DeviceLists lists, CUstream_st* stream);
  ~DeviceExchange();
  DeviceExchange(DeviceExchange&&) noexcept;
  DeviceExchange& operator=(DeviceExchange&&) noexcept;

  Status start(CUstream_st* stream);  // does not wait
  Status finish(CUstream_st* stream);

  uint64_t device_bytes() const noexcept;
  uint64_t host_bytes() const noexcept;

  struct Impl;

 private:
  explicit DeviceExchange(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
