// A tensor's form in messages.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "deltawire/tensor.h"

namespace deltawire {

// "BF16 [2048, 1024]"
inline std::string form_of(DType dtype, const Shape& shape) {
  return std::string(dtype_name(dtype)) + " " + shape_to_string(shape);
}
std::string form_of(const auto& tensor) { return form_of(tensor.dtype, tensor.shape); }

// Tensors by name, in anything that has them sorted by name.

// The tensor of this name, or null. O(log n). `tensors` is contiguous; its elements have a name or
// a view with a name.
template <class Tensors>
auto find_tensor(Tensors&& tensors, std::string_view name) -> decltype(std::data(tensors)) {
  const auto name_of = [](const auto& tensor) -> const std::string& {
    if constexpr (requires { tensor.view; }) {
      return tensor.view.name;
    } else {
      return tensor.name;
    }
  };
  const auto end = std::data(tensors) + std::size(tensors);
  const auto found = std::lower_bound(
      std::data(tensors), end, name,
      [&](const auto& tensor, std::string_view key) { return name_of(tensor) < key; });
  return found != end && name_of(*found) == name ? found : nullptr;
}

}  // namespace deltawire
