// Memory of a Python object (bytes, a memoryview, an array), without a copy. Needs the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <span>

namespace deltawire::python {

namespace nb = nanobind;

class Buffer {
 public:
  enum class Access { kRead, kWrite };
  explicit Buffer(nb::handle object, Access access = Access::kRead) {
    const int flags = access == Access::kWrite ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::span<const uint8_t> span() const { return writable(); }
  std::span<uint8_t> writable() const {
    return {static_cast<uint8_t*>(view_.buf), size_t(view_.len)};
  }

 private:
  Py_buffer view_;
};

}  // namespace deltawire::python
