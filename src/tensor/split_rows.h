// Very large arrays as slices of rows, so that what is made of one stays small.
#pragma once

#include <cstdint>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

// A box of a tensor and where its contents lie in those of the box it was cut from: in one piece.
struct Slice {
  Box box;
  uint64_t begin = 0, size_bytes = 0;
};

// Cuts a box (or a whole tensor) along its first dimensions into slices of at most `max_bytes`, or
// of a single element of the last dimension's rows where those are larger. One slice, the box
// itself, when it is small enough or holds packed elements that cannot be cut there.
std::vector<Slice> split_rows(const Box& box, DType dtype, const Shape& shape, uint64_t max_bytes);

}  // namespace deltawire
