#include "raised.h"

#include <map>

#include "status.h"

namespace deltawire::python {
namespace {

// Guarded by the GIL. Never destroyed: the interpreter may be gone by then. The last of each code:
// objects that are looked for and not there are raised about all the time.
struct Raised {
  nb::object exception;
  Status status;
};
std::map<Code, Raised>& last() {
  static auto* const raised = new std::map<Code, Raised>;
  return *raised;
}

}  // namespace

Status note_raised(nb::handle exception) {
  Status status = status_from(exception);
  last()[status.code()] = {nb::borrow(exception), status};
  return status;
}

nb::object raised_behind(const Status& status) {
  const auto found = last().find(status.code());
  if (found == last().end() ||
      status.message().find(found->second.status.message()) == std::string::npos) {
    return {};
  }
  nb::object exception = std::move(found->second.exception);
  last().erase(found);
  return exception;
}

void forget_raised() noexcept { last().clear(); }

}  // namespace deltawire::python
