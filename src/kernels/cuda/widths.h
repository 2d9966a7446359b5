// From a width known at run time to a type known when compiled.
#pragma once

#include <cstdint>

#include "deltawire/status.h"
#include "kernels/cuda/diff.h"

namespace deltawire::cuda {

// Calls body.operator()<T, kKind>().
template <class Body>
Status with_kind(unsigned width, NewKind kind, const Body& body) {
  if (kind == NewKind::kF32AsBf16) {
    return body.template operator()<uint16_t, NewKind::kF32AsBf16>();
  }
  if (kind == NewKind::kF16AsBf16) {
    return body.template operator()<uint16_t, NewKind::kF16AsBf16>();
  }
  if (kind == NewKind::kMarkedFp8) {
    return body.template operator()<uint8_t, NewKind::kMarkedFp8>();
  }
  switch (width) {
    case 1:
      return body.template operator()<uint8_t, NewKind::kSame>();
    case 2:
      return body.template operator()<uint16_t, NewKind::kSame>();
    case 4:
      return body.template operator()<uint32_t, NewKind::kSame>();
    default:
      return body.template operator()<uint64_t, NewKind::kSame>();
  }
}

template <class Body>
Status with_width(unsigned width, const Body& body) {
  return with_kind(width, NewKind::kSame,
                   [&]<class T, NewKind kKind>() { return body.template operator()<T>(); });
}

}  // namespace deltawire::cuda
