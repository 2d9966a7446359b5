// Failures, from C++ to Python and back: one table, deltawire/errors.py.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <utility>

#include "deltawire/status.h"

namespace deltawire::python {

namespace nb = nanobind;

// Crosses the border as the exception that errors.py has for its code.
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

// What an exception of Python code means to the library that called it. With the GIL.
Status status_from(nb::handle exception);

void bind_status(nb::module_& module);

// Notes the exception and says what Status it is. With the GIL.
Status note_raised(nb::handle exception);
// The last exception noted with its code, if it is what `status` tells of. With the GIL.
nb::object raised_behind(const Status& status);
// When a call has ended well: an exception holds on to the frames that it came through.
void forget_raised() noexcept;

}  // namespace deltawire::python
