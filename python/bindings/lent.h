// Python objects that the library calls, and the memory it lends them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "gil.h"
#include "status.h"

namespace deltawire::python {

// body() -> T, with the GIL; what is raised becomes a Status before it is let go of.
template <class T, class Body>
Result<T> ask_python(const std::string& place, const Body& body) {
  return with_gil<Result<T>>(cancelled(place + ": the Python interpreter is ending"),
                             [&]() -> Result<T> {
                               try {
                                 return body();
                               } catch (const nb::python_error& error) {
                                 return note_raised(error.value()).at(place);
                               } catch (const nb::cast_error&) {
                                 return internal_error(place + ": an answer of the wrong type");
                               } catch (StatusError& error) {
                                 return error.status();
                               }
                             });
}

// The library's memory for the time of one call.
class LentView {
 public:
  LentView(const uint8_t* data, size_t size, int access)
      : view_(nb::steal(PyMemoryView_FromMemory(
            const_cast<char*>(reinterpret_cast<const char*>(data)), Py_ssize_t(size), access))) {
    if (!view_.is_valid()) throw nb::python_error();
  }
  ~LentView() {
    // Who keeps it finds it empty; arrays made of it are its own affair.
    PyObject* const done = PyObject_CallMethod(view_.ptr(), "release", nullptr);
    if (done == nullptr) PyErr_Clear();
    Py_XDECREF(done);
  }
  LentView(const LentView&) = delete;
  LentView& operator=(const LentView&) = delete;
  const nb::object& get() const { return view_; }

 private:
  nb::object view_;
};

}  // namespace deltawire::python
