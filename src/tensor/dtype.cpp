#include <array>

#include "base/bytes.h"
#include "deltawire/tensor.h"

namespace deltawire {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  uint32_t bits;
};

// In the order of the enum, so that a lookup by dtype is an index. The names go to disk.
constexpr std::array kDTypes = {
    DTypeInfo{DType::kBool, "BOOL", 8},       DTypeInfo{DType::kU8, "U8", 8},
    DTypeInfo{DType::kI8, "I8", 8},           DTypeInfo{DType::kF8_E5M2, "F8_E5M2", 8},
    DTypeInfo{DType::kF8_E4M3, "F8_E4M3", 8}, DTypeInfo{DType::kF8_E8M0, "F8_E8M0", 8},
    DTypeInfo{DType::kF4, "F4", 4},           DTypeInfo{DType::kF6_E2M3, "F6_E2M3", 6},
    DTypeInfo{DType::kF6_E3M2, "F6_E3M2", 6}, DTypeInfo{DType::kI16, "I16", 16},
    DTypeInfo{DType::kU16, "U16", 16},        DTypeInfo{DType::kF16, "F16", 16},
    DTypeInfo{DType::kBF16, "BF16", 16},      DTypeInfo{DType::kI32, "I32", 32},
    DTypeInfo{DType::kU32, "U32", 32},        DTypeInfo{DType::kF32, "F32", 32},
    DTypeInfo{DType::kC64, "C64", 64},        DTypeInfo{DType::kF64, "F64", 64},
    DTypeInfo{DType::kI64, "I64", 64},        DTypeInfo{DType::kU64, "U64", 64},
};

constexpr bool in_enum_order() {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (size_t(kDTypes[i].dtype) != i) return false;
  }
  return kDTypes.size() == size_t(DType::kU64) + 1;
}
static_assert(in_enum_order());

}  // namespace

std::string_view dtype_name(DType dtype) noexcept { return kDTypes[size_t(dtype)].name; }

uint32_t dtype_bits(DType dtype) noexcept { return kDTypes[size_t(dtype)].bits; }

std::optional<DType> parse_dtype(std::string_view name) noexcept {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

// The overflow check leaves out zeros: computing the strides of [0, 2^63, 2^63] would overflow, so
// such a shape is refused wherever its zero is.
Result<uint64_t> num_elements(const Shape& shape) {
  uint64_t product = 1;
  bool empty = false;
  for (const uint64_t extent : shape) {
    if (extent == 0) {
      empty = true;
    } else if (!checked_mul(product, extent, &product)) {
      return invalid_argument("shape " + shape_to_string(shape) + " has over 2^64 elements");
    }
  }
  return empty ? 0 : product;
}

// Eight elements of any dtype fill exactly `bits` bytes. Counting in eights avoids the number of
// bits, which may overflow although the number of bytes fits.
Result<uint64_t> tensor_size_bytes(DType dtype, const Shape& shape) {
  DW_ASSIGN_OR_RETURN(const uint64_t elements, num_elements(shape));
  const uint64_t bits = dtype_bits(dtype);
  const uint64_t last_bits = elements % 8 * bits;
  const std::string what = std::string(dtype_name(dtype)) + " " + shape_to_string(shape);
  if (last_bits % 8 != 0) return invalid_argument(what + " does not fill whole bytes");
  uint64_t size = 0;
  if (!checked_mul(elements / 8, bits, &size) || !checked_add(size, last_bits / 8, &size)) {
    return invalid_argument(what + " takes over 2^64 bytes");
  }
  return size;
}

std::string shape_to_string(const Shape& shape) {
  std::string text = "[";
  for (const uint64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

}  // namespace deltawire
