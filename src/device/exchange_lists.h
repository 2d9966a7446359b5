// The lists of an exchange for arrays on a GPU. exchange.cpp has those of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "deltawire/exchange.h"

namespace deltawire {

class DeviceExchange {
 public:
  // Of sound lists, all of them for arrays on a GPU. InvalidArgument unless it is one GPU.
  static Result<DeviceExchange> stage(std::span<const ExchangeList* const> lists,
                                      std::optional<uint64_t> most_device_bytes);
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
