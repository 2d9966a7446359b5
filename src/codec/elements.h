// From an element width known at run time to a type known at compile time.
#pragma once

#include <cstdint>

namespace deltawire {

// Calls body(T{}) with the unsigned integer of `width` bytes: 1, 2, 4 or 8.
template <class Body>
auto with_element(unsigned width, Body&& body) {
  switch (width) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    default:
      return body(uint64_t{});
  }
}

}  // namespace deltawire
