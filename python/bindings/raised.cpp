#include "raised.h"

#include "status.h"

namespace deltawire::python {
namespace {

// Guarded by the GIL. Never destroyed: the interpreter may be gone by then.
struct Raised {
  nb::object exception;
  Status status;
};
Raised& last() {
  static Raised* const raised = new Raised;
  return *raised;
}

}  // namespace

Status note_raised(nb::handle exception) {
  Status status = status_from(exception);
  last() = {nb::borrow(exception), status};
  return status;
}

nb::object raised_behind(const Status& status) {
  const Raised& raised = last();
  if (!raised.exception.is_valid() || raised.status.code() != status.code() ||
      status.message().find(raised.status.message()) == std::string::npos) {
    return {};
  }
  return std::move(last().exception);
}

void forget_raised() noexcept { last().exception.reset(); }

}  // namespace deltawire::python
