#include "deltawire/tensor.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Calls body(tensor_byte, contents_byte, num_bytes) for every contiguous row of the box.
template <class Body>
void each_row(const Box& box, DType dtype, const Shape& shape, const Body& body) {
  const size_t rank = shape.size();
  uint64_t rows = 1;
  for (size_t d = 0; d + 1 < rank; ++d) rows *= box.extent[d];
  const uint64_t row_bytes = box.extent[rank - 1] * dtype_bits(dtype) / 8;
  if (row_bytes == 0) return;
  for (uint64_t row = 0; row < rows; ++row) {
    uint64_t left = row, element = 0, stride = shape[rank - 1];
    for (size_t d = rank - 1; d-- > 0;) {
      element += (box.offset[d] + left % box.extent[d]) * stride;
      left /= box.extent[d];
      stride *= shape[d];
    }
    element += box.offset[rank - 1];
    body(element * dtype_bits(dtype) / 8, row * row_bytes, row_bytes);
  }
}

}  // namespace

std::string box_to_string(const Box& box) {
  return join_numbers(box.offset) + "+" + join_numbers(box.extent);
}

Result<Box> parse_box(std::string_view text) {
  Box box;
  const size_t plus = text.find('+');
  if (plus == std::string_view::npos || !split_numbers(text.substr(0, plus), &box.offset) ||
      !split_numbers(text.substr(plus + 1), &box.extent) ||
      box.offset.size() != box.extent.size()) {
    return corruption("a box is offsets+extents, got \"" + std::string(text.substr(0, 80)) + "\"");
  }
  return box;
}

Status check_box(const Box& box, DType dtype, const Shape& shape) {
  if (box.whole()) return {};
  const std::string name = "box " + box_to_string(box) + " of a tensor " + shape_to_string(shape);
  if (box.offset.size() != shape.size() || box.extent.size() != shape.size()) {
    return invalid_argument(name + ": expected " + std::to_string(shape.size()) + " dimensions");
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    uint64_t end;
    if (!checked_add(box.offset[d], box.extent[d], &end) || end > shape[d]) {
      return invalid_argument(name + ": leaves dimension " + std::to_string(d));
    }
  }
  const uint64_t bits = dtype_bits(dtype);
  if (bits % 8 != 0 && (box.offset.back() * bits % 8 != 0 || box.extent.back() * bits % 8 != 0 ||
                        shape.back() * bits % 8 != 0)) {
    return invalid_argument(name + ": cuts a byte of packed elements");
  }
  return {};
}

Shape box_shape(const Box& box, const Shape& shape) { return box.whole() ? shape : box.extent; }

void copy_box_out(const Box& box, DType dtype, const Shape& shape, std::span<const uint8_t> tensor,
                  std::span<uint8_t> contents) {
  if (box.whole()) {
    std::copy(tensor.begin(), tensor.end(), contents.begin());
    return;
  }
  each_row(box, dtype, shape, [&](uint64_t from, uint64_t to, uint64_t n) {
    std::memcpy(contents.data() + to, tensor.data() + from, n);
  });
}

void copy_box_in(const Box& box, DType dtype, const Shape& shape, std::span<const uint8_t> contents,
                 std::span<uint8_t> tensor) {
  if (box.whole()) {
    std::copy(contents.begin(), contents.end(), tensor.begin());
    return;
  }
  each_row(box, dtype, shape, [&](uint64_t to, uint64_t from, uint64_t n) {
    std::memcpy(tensor.data() + to, contents.data() + from, n);
  });
}

}  // namespace deltawire
