// Boxes of a tensor: overlaps, rows and slices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/tensor.h"
#include "tensor/box_math.h"

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

// Converts a box that covers the whole tensor to the empty box.
inline Box normalise_box(Box box, const Shape& shape) {
  const bool all = box.extent == shape && std::all_of(box.offset.begin(), box.offset.end(),
                                                      [](uint64_t at) { return at == 0; });
  return all ? Box{} : box;
}

// Where the bytes of a box lie in its tensor: equally long rows, in the order of the contents.

// Row i of the contents, row_bytes() long, lies at position(i) of the tensor; positions ascend. The
// box must have passed check_box.
class BoxRows {
 public:
  BoxRows(const Box& box, DType dtype, const Shape& shape) : bits_(dtype_bits(dtype)) {
    box_ = spelled_out(box, shape);
    shape_ = shape;
    // Dimensions that the box has whole join the row of the one before them.
    size_t inner = shape.size();
    uint64_t elements = 1;
    while (inner > 0 && box_.extent[inner - 1] == shape[inner - 1]) elements *= shape[--inner];
    if (inner > 0) elements *= box_.extent[--inner];
    outer_ = inner;
    row_bytes_ = elements * bits_ / 8;
    for (size_t d = 0; d < outer_; ++d) count_ *= box_.extent[d];
    if (row_bytes_ == 0) count_ = 0;
  }

  uint64_t count() const noexcept { return count_; }
  uint64_t row_bytes() const noexcept { return row_bytes_; }

  uint64_t position(uint64_t row) const noexcept {
    uint64_t element = 0, stride = 1;
    for (size_t d = shape_.size(); d-- > 0;) {
      uint64_t at = box_.offset[d];
      if (d < outer_) {
        at += row % box_.extent[d];
        row /= box_.extent[d];
      }
      element += at * stride;
      stride *= shape_[d];
    }
    return element * bits_ / 8;
  }

  // Whether many of the box's rows begin or end inside a word of the tensor, 8 bytes. Few may.
  bool cuts_many_words() const noexcept {
    constexpr uint64_t kFew = 256, kWordBytes = 8;
    if (count_ <= kFew) return false;
    if (row_bytes_ % kWordBytes != 0 || position(0) % kWordBytes != 0) return true;
    uint64_t stride = 1;
    for (size_t d = shape_.size(); d-- > 0; stride *= shape_[d]) {
      if (d < outer_ && box_.extent[d] > 1 && stride * bits_ / 8 % kWordBytes != 0) return true;
    }
    return false;
  }

  // The first row that ends after `byte` of the tensor; count() if there is none.
  uint64_t first_behind(uint64_t byte) const noexcept {
    uint64_t low = 0, high = count_;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (position(middle) + row_bytes_ > byte) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

 private:
  uint64_t bits_;
  Box box_;
  Shape shape_;
  size_t outer_ = 0;  // dimensions before those of a row
  uint64_t row_bytes_ = 0, count_ = 1;
};

// Whether boxes of one tensor cover it, each element once.

// Corruption for a box that leaves the tensor, for two that overlap and for a gap. Takes time in
// proportion to the boxes, which are untrusted; of very many bad ones it may not find out which two
// overlap.
Status check_cover(DType dtype, const Shape& shape, std::span<const Box* const> boxes);

// Very large arrays as slices of rows, so that what is made of one stays small.

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
