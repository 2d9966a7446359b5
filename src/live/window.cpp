#include "live/window.h"

namespace deltawire {
namespace {

// first + sum of (extent - 1) * stride, which is the last element; false when that is no number.
bool last_element(uint64_t first, const std::vector<uint64_t>& extent,
                  const std::vector<uint64_t>& strides, uint64_t* last) {
  *last = first;
  for (size_t d = 0; d < extent.size(); ++d) {
    uint64_t span = 0;
    if (__builtin_mul_overflow(extent[d] - 1, strides[d], &span) ||
        __builtin_add_overflow(*last, span, last)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string_view window_defect(const Window& window, uint64_t num_elements,
                               uint64_t array_elements) {
  const size_t num_dims = window.extent.size();
  if (window.strides.size() != num_dims || window.array_strides.size() != num_dims) {
    return "not as many strides as dimensions";
  }
  if (num_dims > kMaxWindowDims) return "too many dimensions";
  for (const uint64_t n : window.extent) {
    if (n == 0) return "is empty";
  }
  uint64_t last = 0;
  if (!last_element(window.first, window.extent, window.strides, &last) || last >= num_elements) {
    return "does not lie in its tensor";
  }
  if (!last_element(window.array_first, window.extent, window.array_strides, &last) ||
      last >= array_elements) {
    return "does not lie in its array";
  }
  uint64_t inner = 1;  // elements that the dimensions behind span
  for (size_t d = num_dims; d-- > 0;) {
    if (window.extent[d] == 1) continue;
    if (window.strides[d] < inner) return "does not run through its tensor in order";
    inner = window.strides[d] * (window.extent[d] - 1) + inner;
  }
  return {};
}

WindowPlan::WindowPlan(const Window& window)
    : first_(window.first), end_(window.first + 1), array_first_(window.array_first) {
  for (size_t d = 0; d < window.extent.size(); ++d) {
    if (window.extent[d] == 1) continue;
    end_ += (window.extent[d] - 1) * window.strides[d];
    const Dim next{window.extent[d], window.strides[d], window.array_strides[d]};
    if (num_dims_ > 0) {
      Dim& outer = dims_[num_dims_ - 1];
      if (outer.stride == next.extent * next.stride &&
          outer.array_stride == next.extent * next.array_stride) {
        outer = {outer.extent * next.extent, next.stride, next.array_stride};
        continue;
      }
    }
    dims_[num_dims_++] = next;
  }
}

}  // namespace deltawire
