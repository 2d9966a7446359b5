// Carriers as Python holds them.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <memory>
#include <mutex>

#include "carrier/backend.h"
#include "carrier/carrier.h"

namespace deltawire::python {

namespace nb = nanobind;

// Python's deltawire._core.Carrier. Connections do not survive a fork.
class CarrierHandle {
 public:
  explicit CarrierHandle(std::shared_ptr<Carrier> carrier) : carrier_(std::move(carrier)) {}
  // InvalidArgument in a forked child, or after close().
  const std::shared_ptr<Carrier>& get() const;
  void close() { carrier_.reset(); }
  std::mutex& in_use() const { return *in_use_; }

 private:
  std::shared_ptr<Carrier> carrier_;
  std::unique_ptr<std::mutex> in_use_ = std::make_unique<std::mutex>();
  pid_t process_ = getpid();
};

// The library's view of a deltawire.carriers.Carrier or Backend that was written in Python.
std::unique_ptr<Carrier> adapt_carrier(nb::object object);
std::shared_ptr<Backend> adapt_backend(nb::object object);
bool is_in_python(const Carrier& carrier);

}  // namespace deltawire::python
