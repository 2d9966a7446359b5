// What `indices` on the CPU and on a GPU share.
#pragma once

#include <cstdint>

namespace deltawire {

// Bytes of a position in an array of so many elements: i32, or i64 above 2^31 - 1.
constexpr unsigned position_width(uint64_t num_elements) {
  return num_elements <= uint64_t{0x7fffffff} ? 4 : 8;
}

}  // namespace deltawire
