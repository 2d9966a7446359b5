#include "format/layout.h"

namespace deltawire {

Layout layout_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF8_E5M2:
      return {1, 2, 0x1f};
    case DType::kF8_E4M3:
      return {1, 3, 0x0f};
    case DType::kBool:
    case DType::kU8:
    case DType::kI8:
    case DType::kF8_E8M0:
    case DType::kF4:
    case DType::kF6_E2M3:
    case DType::kF6_E3M2:
      return {1, 0, 0xff};
    case DType::kF16:
      return {2, 10, 0x1f};
    case DType::kBF16:
      return {2, 7, 0xff};
    case DType::kI16:
    case DType::kU16:
      return {2, 8, 0xff};
    case DType::kF32:
    case DType::kC64:
      return {4, 23, 0xff};
    case DType::kI32:
    case DType::kU32:
      return {4, 24, 0xff};
    case DType::kF64:
      return {8, 52, 0xff};  // the low eight of eleven exponent bits
    case DType::kI64:
    case DType::kU64:
      return {8, 56, 0xff};
  }
  return {};
}

Layout layout_of(DType dtype, const Shape& shape) noexcept {
  Layout layout = layout_of(dtype);
  if (shape.size() < 2) return layout;
  const uint64_t rows = shape[shape.size() - 2], row_bits = shape.back() * dtype_bits(dtype);
  const uint64_t columns = row_bits / 8 / layout.width;
  const bool whole = columns * layout.width * 8 == row_bits && shape.back() <= UINT32_MAX;
  if (rows == 0 || columns == 0 || rows > UINT32_MAX || columns > UINT32_MAX || !whole)
    return layout;
  layout.rows = uint32_t(rows);
  layout.columns = uint32_t(columns);
  return layout;
}

}  // namespace deltawire
