#include "status.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <map>

namespace deltawire::python {
namespace {

nb::object errors(const char* function) {
  return nb::module_::import_("deltawire.errors").attr(function);
}

void raise(const Status& status) {
  const nb::object cause = raised_behind(status);
  if (cause.is_valid() && PyExceptionInstance_Check(cause.ptr()) &&
      !PyObject_IsInstance(cause.ptr(), PyExc_Exception)) {
    PyErr_SetObject(cause.type().ptr(), cause.ptr());  // KeyboardInterrupt, SystemExit: unchanged
    return;
  }
  const nb::object error = errors("from_status")(int(status.code()), status.message());
  if (cause.is_valid()) PyException_SetCause(error.ptr(), nb::object(cause).release().ptr());
  PyErr_SetObject(error.type().ptr(), error.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const StatusError& error) {
    try {
      raise(error.status());
    } catch (nb::python_error& failed) {
      failed.restore();
    }
  }
}

}  // namespace

Status status_from(nb::handle exception) {
  try {
    const nb::object answer = errors("to_status")(exception);
    return Status(Code(nb::cast<int>(answer[0])), nb::cast<std::string>(answer[1]));
  } catch (nb::python_error& failed) {
    return internal_error(failed.what());
  }
}

void bind_status(nb::module_& module) {
  nb::register_exception_translator(translate);
  module.def(
      "code_name", [](int code) { return code_name(Code(code)); }, nb::arg("code"));
  module.def(
      "next_step",
      [](int code, std::string message) {
        return next_step(Status(Code(code), std::move(message)));
      },
      nb::arg("code"), nb::arg("message"));
}

namespace {

// Guarded by the GIL. Never destroyed: the interpreter may be gone first. One exception per code,
// because stores raise NotFound all the time.
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
