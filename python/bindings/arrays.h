// Vectors as arrays of numpy, without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <vector>

namespace deltawire::python {

namespace nb = nanobind;

// An array of numpy that owns the vector.
template <class T>
nb::object to_array(std::vector<T> values) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* const data = kept->data();
  const size_t size = kept->size();
  nb::capsule owner(kept.release(),
                    [](void* vector) noexcept { delete static_cast<std::vector<T>*>(vector); });
  return nb::cast(nb::ndarray<nb::numpy, T>(data, {size}, owner));
}

}  // namespace deltawire::python
