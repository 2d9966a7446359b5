// Where the bytes of a box lie in its tensor: equally long runs, in the order of the contents.
#pragma once

#include <algorithm>
#include <cstdint>

#include "deltawire/box.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Run i of the contents, run_bytes() long, lies at position(i) of the tensor; positions ascend. The
// box must have passed check_box.
class BoxRuns {
 public:
  BoxRuns(const Box& box, DType dtype, const Shape& shape) : bits_(dtype_bits(dtype)) {
    box_ = box.whole() ? Box{Shape(shape.size(), 0), shape} : box;
    shape_ = shape;
    // Dimensions that the box has whole join the run of the one before them.
    size_t inner = shape.size();
    uint64_t elements = 1;
    while (inner > 0 && box_.extent[inner - 1] == shape[inner - 1]) elements *= shape[--inner];
    if (inner > 0) elements *= box_.extent[--inner];
    outer_ = inner;
    run_bytes_ = elements * bits_ / 8;
    for (size_t d = 0; d < outer_; ++d) count_ *= box_.extent[d];
    if (run_bytes_ == 0) count_ = 0;
  }

  uint64_t count() const noexcept { return count_; }
  uint64_t run_bytes() const noexcept { return run_bytes_; }

  uint64_t position(uint64_t run) const noexcept {
    uint64_t element = 0, stride = 1;
    for (size_t d = shape_.size(); d-- > 0;) {
      uint64_t at = box_.offset[d];
      if (d < outer_) {
        at += run % box_.extent[d];
        run /= box_.extent[d];
      }
      element += at * stride;
      stride *= shape_[d];
    }
    return element * bits_ / 8;
  }

  // The first run that ends behind `byte` of the tensor; count() when none does.
  uint64_t first_behind(uint64_t byte) const noexcept {
    uint64_t low = 0, high = count_;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (position(middle) + run_bytes_ > byte) {
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
  size_t outer_ = 0;  // dimensions before those of a run
  uint64_t run_bytes_ = 0, count_ = 1;
};

}  // namespace deltawire
