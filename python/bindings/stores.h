// Handles of stores in Python.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <memory>

#include "deltawire/store.h"

namespace deltawire::python {

namespace nb = nanobind;

// Python's deltawire._core.Store. It cannot be used in a forked child process.
class StoreHandle {
 public:
  explicit StoreHandle(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  StoreHandle(const StoreHandle&) = default;
  StoreHandle(StoreHandle&&) = default;
  // Releases the GIL: the store may join threads that log.
  ~StoreHandle();
  // InvalidArgument in a forked child process.
  const std::shared_ptr<Store>& get() const;

 private:
  std::shared_ptr<Store> store_;
  pid_t process_ = getpid();
};

// Wraps a deltawire.Store written in Python, with retries.
std::shared_ptr<Store> adapt_store(nb::object object);

void bind_stores(nb::module_& module);
void bind_hooked_store(nb::module_& module);

}  // namespace deltawire::python
