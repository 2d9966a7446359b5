#include "tensor/split_rows.h"

#include <algorithm>

namespace deltawire {

std::vector<Slice> split_rows(const Box& box, DType dtype, const Shape& shape, uint64_t max_bytes) {
  const Shape extent = box_shape(box, shape);
  const uint64_t total = tensor_size_bytes(dtype, extent).value();  // checked by the caller
  const std::vector<Slice> uncut = {{box, 0, total}};
  if (total <= max_bytes || extent.empty()) return uncut;

  // The first dimension whose rows are small enough is cut; those before it go one by one.
  const uint64_t bits = dtype_bits(dtype);
  size_t cut = 0;
  uint64_t row_bits = total * 8 / extent[0];
  while (row_bits > max_bytes * 8 && cut + 1 < extent.size()) row_bits /= extent[++cut];
  uint64_t rows = std::clamp<uint64_t>(max_bytes * 8 / row_bits, 1, extent[cut]);
  if (bits % 8 != 0 && cut + 1 == extent.size() && rows > 8) rows -= rows % 8;

  const Shape origin = box.whole() ? Shape(shape.size(), 0) : box.offset;
  std::vector<Slice> slices;
  uint64_t outer = 1, begin = 0;
  for (size_t d = 0; d < cut; ++d) outer *= extent[d];
  for (uint64_t i = 0; i < outer; ++i) {
    Box slice{origin, extent};
    uint64_t left = i;
    for (size_t d = cut; d-- > 0;) {
      slice.offset[d] += left % extent[d];
      slice.extent[d] = 1;
      left /= extent[d];
    }
    for (uint64_t row = 0; row < extent[cut]; row += rows) {
      slice.offset[cut] = origin[cut] + row;
      slice.extent[cut] = std::min(rows, extent[cut] - row);
      if (!check_box(slice, dtype, shape).ok()) return uncut;
      const uint64_t size = tensor_size_bytes(dtype, slice.extent).value();
      slices.push_back({slice, begin, size});
      begin += size;
    }
  }
  return slices;
}

}  // namespace deltawire
