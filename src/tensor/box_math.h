// Sums and differences of boxes. Here an empty box does not stand for the whole tensor.
#pragma once

#include <algorithm>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

inline Box spelled_out(const Box& box, const Shape& shape) {
  return box.whole() ? Box{Shape(shape.size(), 0), shape} : box;
}

inline uint64_t num_elements_of(const Box& box) {
  uint64_t count = 1;
  for (const uint64_t extent : box.extent) count *= extent;
  return count;
}

// The intersection; it has no elements if the boxes are disjoint.
inline Box intersection(const Box& a, const Box& b) {
  Box both = a;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const uint64_t begin = std::max(a.offset[d], b.offset[d]);
    const uint64_t end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    both.offset[d] = begin;
    both.extent[d] = end > begin ? end - begin : 0;
  }
  return both;
}

// Adds to *rest the part of `box` outside `inner`, which lies inside it: at most two boxes per
// dimension.
inline void add_rest(Box box, const Box& inner, std::vector<Box>* rest) {
  for (size_t d = 0; d < box.offset.size(); ++d) {
    const uint64_t end = box.offset[d] + box.extent[d];
    const uint64_t inner_end = inner.offset[d] + inner.extent[d];
    if (inner.offset[d] > box.offset[d]) {
      Box before = box;
      before.extent[d] = inner.offset[d] - box.offset[d];
      rest->push_back(std::move(before));
    }
    if (end > inner_end) {
      Box behind = box;
      behind.offset[d] = inner_end;
      behind.extent[d] = end - inner_end;
      rest->push_back(std::move(behind));
    }
    box.offset[d] = inner.offset[d];
    box.extent[d] = inner.extent[d];
  }
}

}  // namespace deltawire
