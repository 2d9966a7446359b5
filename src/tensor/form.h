// A tensor's form in messages.
#pragma once

#include <string>

#include "deltawire/tensor.h"

namespace deltawire {

// "BF16 [2048, 1024]"
inline std::string form_of(DType dtype, const Shape& shape) {
  return std::string(dtype_name(dtype)) + " " + shape_to_string(shape);
}

}  // namespace deltawire
