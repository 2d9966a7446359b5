// Passes events of the library to Python; deltawire/_internal/output.py turns them into log
// records.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <type_traits>
#include <variant>

#include "bind.h"
#include "calls.h"
#include "deltawire/progress.h"

namespace deltawire::python {
namespace {

nb::object python_value(const LogValue& value) {
  return std::visit(
      [](const auto& own) -> nb::object {
        using Own = std::decay_t<decltype(own)>;
        if constexpr (std::is_same_v<Own, std::monostate>) {
          return nb::none();
        } else if constexpr (std::is_same_v<Own, std::string>) {
          // A quoted name may not be valid UTF-8.
          return nb::steal(PyUnicode_DecodeUTF8(own.data(), Py_ssize_t(own.size()), "replace"));
        } else {
          return nb::cast(own);
        }
      },
      value.value());
}

void tell(const nb::object& listener, const LogRecord& record) {
  try {
    nb::dict fields;
    for (const LogField& field : record.fields) {
      fields[nb::str(field.name.data(), field.name.size())] = python_value(field.value);
    }
    listener(int(record.level), nb::str(record.event.data(), record.event.size()), fields);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("an event of deltawire");
  }
}

LogSink sink_of(nb::object object) {
  // The last copy may be destroyed without the GIL.
  const std::shared_ptr<nb::object> listener(new nb::object(std::move(object)),
                                             [](nb::object* own) {
                                               const GilTaken gil;
                                               if (gil.taken()) delete own;
                                             });
  return [listener](const LogRecord& record) {
    with_gil(false, [&] {
      tell(*listener, record);
      return true;
    });
  };
}

}  // namespace

void bind_logging(nb::module_& module) {
  module.def(
      "set_log_listener",
      [](nb::object listener) {
        LogSink sink = listener.is_none() ? LogSink() : sink_of(std::move(listener));
        // Without the GIL: another thread may be in the sink, waiting for it.
        without_gil([&] { set_log_sink(LogLevel::kDebug, std::move(sink)); });
      },
      nb::arg("listener").none());
}

}  // namespace deltawire::python
