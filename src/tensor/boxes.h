// What boxes of one tensor have to do with each other.
#pragma once

#include <algorithm>

#include "deltawire/tensor.h"

namespace deltawire {

inline bool overlap(const Box& a, const Box& b) {
  if (a.whole() || b.whole()) return true;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    if (a.offset[d] + a.extent[d] <= b.offset[d] || b.offset[d] + b.extent[d] <= a.offset[d]) {
      return false;
    }
  }
  return true;
}

// A box that covers everything is no box.
inline Box normalise_box(Box box, const Shape& shape) {
  const bool all = box.extent == shape && std::all_of(box.offset.begin(), box.offset.end(),
                                                      [](uint64_t at) { return at == 0; });
  return all ? Box{} : box;
}

}  // namespace deltawire
