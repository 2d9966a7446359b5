// How the library calls Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "gil.h"
#include "status.h"

namespace deltawire::python {

// body() -> T, with the GIL. Exceptions become a Status while the GIL is held.
template <class T, class Body>
Result<T> ask_python(const std::string& place, const Body& body) {
  return with_gil<Result<T>>(
      cancelled(place + ": the Python interpreter is ending"), [&]() -> Result<T> {
        try {
          return body();
        } catch (const nb::python_error& error) {
          return note_raised(error.value()).at(place);
        } catch (const nb::cast_error&) {
          return internal_error(place + ": Python returned a value of the wrong type");
        } catch (StatusError& error) {
          return error.status();
        }
      });
}

}  // namespace deltawire::python
