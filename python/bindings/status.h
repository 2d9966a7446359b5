// Converts errors between C++ and Python, by the table of deltawire/errors.py.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <utility>

#include "deltawire/status.h"

namespace deltawire::python {

namespace nb = nanobind;

// Raised in Python as the exception that errors.py defines for its code.
class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const Status& status() const noexcept { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

inline void check(Status status) {
  if (!status.ok()) throw StatusError(std::move(status));
}

template <class T>
T unwrap(Result<T> result) {
  if (!result.ok()) throw StatusError(std::move(result).status());
  return std::move(result).value();
}

// The Status for an exception of Python code. Needs the GIL.
Status status_from(nb::handle exception);

void bind_status(nb::module_& module);

// Notes the exception and returns its Status. Needs the GIL.
Status note_raised(nb::handle exception);
// The exception that caused `status`, if it was noted. Needs the GIL.
nb::object raised_behind(const Status& status);
// Called after a successful call: a noted exception keeps its stack frames alive.
void forget_raised() noexcept;

}  // namespace deltawire::python
