// Stores as Python holds them.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <memory>

#include "deltawire/store.h"

namespace deltawire::python {

namespace nb = nanobind;

// Python's deltawire._core.Store. Connections and threads do not survive a fork.
class StoreHandle {
 public:
  explicit StoreHandle(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  StoreHandle(const StoreHandle&) = default;
  StoreHandle(StoreHandle&&) = default;
  // A store may have threads that end with it, and that log.
  ~StoreHandle();
  // InvalidArgument in a forked child.
  const std::shared_ptr<Store>& get() const;

 private:
  std::shared_ptr<Store> store_;
  pid_t process_ = getpid();
};

// The library's view of a deltawire.Store that was written in Python, with retries around it.
std::shared_ptr<Store> adapt_store(nb::object object);

void bind_stores(nb::module_& module);
void bind_hooked_store(nb::module_& module);

}  // namespace deltawire::python
