#include "dialect/slime_gen1/gen1_values.h"

#include <algorithm>
#include <array>
#include <limits>

#include "codec/checks.h"
#include "codec/elements.h"

namespace deltawire::gen1 {
namespace {

enum class Kind : uint8_t { kFloat, kSigned, kUnsigned };

struct NumberType {
  DType dtype;
  std::string_view torch_name;
  Kind kind;
  FloatForm form = {};
  unsigned bits = dtype_bits(dtype);

  unsigned width() const { return bits / 8; }
  // Integers of so many bits are all among its values.
  unsigned exact_bits() const { return kind == Kind::kFloat ? form.mantissa_bits + 1 : bits; }
};

// The names go to disk.
const std::array kNumbers = {
    NumberType{DType::kBF16, "bfloat16", Kind::kFloat, {8, 7}},
    NumberType{DType::kF32, "float32", Kind::kFloat, {8, 23}},
    NumberType{DType::kF16, "float16", Kind::kFloat, {5, 10}},
    NumberType{DType::kF8_E4M3, "float8_e4m3fn", Kind::kFloat, {4, 3, false}},
    NumberType{DType::kF8_E5M2, "float8_e5m2", Kind::kFloat, {5, 2}},
    NumberType{DType::kF64, "float64", Kind::kFloat, kFloat64},
    NumberType{DType::kU8, "uint8", Kind::kUnsigned},
    NumberType{DType::kI8, "int8", Kind::kSigned},
    NumberType{DType::kI16, "int16", Kind::kSigned},
    NumberType{DType::kI32, "int32", Kind::kSigned},
    NumberType{DType::kI64, "int64", Kind::kSigned},
    NumberType{DType::kU16, "uint16", Kind::kUnsigned},
    NumberType{DType::kU32, "uint32", Kind::kUnsigned},
    NumberType{DType::kU64, "uint64", Kind::kUnsigned},
    NumberType{DType::kBool, "bool", Kind::kUnsigned},
};

const NumberType* find_number(DType dtype) noexcept {
  const auto it = std::ranges::find(kNumbers, dtype, &NumberType::dtype);
  return it == kNumbers.end() ? nullptr : &*it;
}

uint64_t sign_extend(uint64_t raw, unsigned bits) {
  return uint64_t(int64_t(raw << (64 - bits)) >> (64 - bits));
}

// An element as 64 bits that mean the same for every type of its kind: a float64, or an integer.
uint64_t load_number(const NumberType& type, uint64_t raw) {
  if (type.kind == Kind::kFloat) return to_float64(type.form, raw);
  return type.kind == Kind::kSigned ? sign_extend(raw, type.bits) : raw;
}

uint64_t integer_to_float64(const NumberType& type, uint64_t number) {
  return std::bit_cast<uint64_t>(type.kind == Kind::kSigned ? double(int64_t(number))
                                                            : double(number));
}

// The element of `type` that is this integer; none: it has none.
std::optional<uint64_t> fit_integer(const NumberType& type, uint64_t number) {
  const unsigned bits = type.dtype == DType::kBool ? 1 : type.bits;
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const uint64_t raw = number & mask;
  const uint64_t again = type.kind == Kind::kSigned ? sign_extend(raw, bits) : raw;
  if (again != number) return {};
  return raw;
}

// The integer that a float64 is; none: it is a fraction, or too large for any type that is stored
// as a float.
std::optional<uint64_t> integer_of(uint64_t bits) {
  const double value = std::bit_cast<double>(bits);
  if (!(value >= -0x1p53 && value <= 0x1p53)) return {};
  const int64_t number = int64_t(value);
  if (std::bit_cast<uint64_t>(double(number)) != bits) return {};  // -0 is no integer either
  return uint64_t(number);
}

std::optional<uint64_t> narrow_number(const NumberType& wide, const NumberType& narrow,
                                      uint64_t raw) {
  const uint64_t number = load_number(wide, raw);
  if (narrow.kind == Kind::kFloat) return from_float64(narrow.form, number);
  if (wide.kind != Kind::kFloat) return fit_integer(narrow, number);
  const std::optional<uint64_t> integer = integer_of(number);
  return integer ? fit_integer(narrow, *integer) : std::nullopt;
}

template <class Element>
uint64_t xor_of_floats(FloatForm form, Bytes values) {
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); i += sizeof(Element)) {
    sum ^= as_converted(form, load_le<Element>(values.data() + i));
  }
  return sum;
}

// Known forms, so that the compiler knows their shifts.
uint64_t xor_as_float64(const NumberType& type, Bytes values) {
  if (type.dtype == DType::kBF16) return xor_of_floats<uint16_t>(FloatForm{8, 7}, values);
  if (type.dtype == DType::kF32) return xor_of_floats<uint32_t>(FloatForm{8, 23}, values);
  return with_element(type.width(), [&]<class Element>(Element) {
    if (type.kind == Kind::kFloat) return xor_of_floats<Element>(type.form, values);
    uint64_t sum = 0;
    for (size_t i = 0; i < values.size(); i += sizeof(Element)) {
      sum ^= integer_to_float64(type, load_number(type, load_le<Element>(values.data() + i)));
    }
    return sum;
  });
}

// Eight at a time: buckets have hundreds of millions.
uint8_t xor_of_bytes(Bytes bytes) {
  uint64_t wide = 0;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) wide ^= load_le<uint64_t>(bytes.data() + i);
  wide ^= wide >> 32;
  wide ^= wide >> 16;
  uint8_t sum = uint8_t(wide ^ wide >> 8);
  for (; i < bytes.size(); ++i) sum ^= bytes[i];
  return sum;
}

// high * 2^64 + low. 2^64 is 10 * kTenth + 6.
std::string decimal_65_bits(bool high, uint64_t low) {
  if (!high) return std::to_string(low);
  constexpr uint64_t kTenth = 1844674407370955161;
  const uint64_t digit = low % 10 + 6;
  return std::to_string(kTenth + low / 10 + digit / 10) + char('0' + digit % 10);
}

}  // namespace

std::string_view torch_dtype_name(DType dtype) noexcept {
  const NumberType* type = find_number(dtype);
  return type == nullptr ? std::string_view() : type->torch_name;
}

std::optional<DType> parse_torch_dtype(std::string_view name) noexcept {
  const auto it = std::ranges::find(kNumbers, name, &NumberType::torch_name);
  if (it == kNumbers.end()) return {};
  return it->dtype;
}

// Integers of over 53 bits, or more than a float's mantissa has, are rounded by torch, and nothing
// in the file would tell.
bool holds_exactly(DType wide, DType narrow) noexcept {
  const NumberType* to = find_number(wide);
  const NumberType* from = find_number(narrow);
  if (to == nullptr || from == nullptr) return false;
  if (wide == narrow) return true;
  if (from->kind == Kind::kFloat) {
    return to->kind == Kind::kFloat && to->form.mantissa_bits >= from->form.mantissa_bits &&
           to->form.exponent_bits >= from->form.exponent_bits;
  }
  if (to->kind == Kind::kFloat) return to->exact_bits() >= from->bits;
  if (from->kind == to->kind) return to->bits >= from->bits;
  return to->kind == Kind::kSigned && to->bits > from->bits;
}

std::optional<DType> promote_exactly(DType a, DType b) noexcept {
  if (a == b) return a;
  const auto is_one_byte = [](DType dtype) { return dtype_bits(dtype) == 8; };
  if (is_one_byte(a) || is_one_byte(b)) return {};  // torch has no rule for float8
  if (holds_exactly(a, b)) return a;
  if (holds_exactly(b, a)) return b;
  const bool halves = dtype_bits(a) == 16 && dtype_bits(b) == 16;
  if (halves && holds_exactly(DType::kF32, a) && holds_exactly(DType::kF32, b)) return DType::kF32;
  return {};
}

Result<std::vector<uint8_t>> narrow_values(DType wide, DType narrow, Bytes values) {
  const NumberType& from = *find_number(wide);
  const NumberType& to = *find_number(narrow);
  const size_t count = values.size() / from.width();
  std::vector<uint8_t> out(count * to.width());
  for (size_t i = 0; i < count; ++i) {
    uint64_t raw = 0;
    std::memcpy(&raw, values.data() + i * from.width(), from.width());
    const std::optional<uint64_t> narrowed = narrow_number(from, to, raw);
    if (!narrowed) {
      return bad_payload("value " + std::to_string(i) + " (" + std::string(dtype_name(wide)) + ")",
                         "one that " + std::string(dtype_name(narrow)) + " has", raw);
    }
    std::memcpy(out.data() + i * to.width(), &*narrowed, to.width());
  }
  return out;
}

std::vector<uint8_t> widen_values(DType narrow, DType wide, Bytes values) {
  const NumberType& from = *find_number(narrow);
  const NumberType& to = *find_number(wide);
  const size_t count = values.size() / from.width();
  std::vector<uint8_t> out(count * to.width());
  for (size_t i = 0; i < count; ++i) {
    uint64_t raw = 0;
    std::memcpy(&raw, values.data() + i * from.width(), from.width());
    uint64_t number = load_number(from, raw);
    if (from.kind != Kind::kFloat && to.kind == Kind::kFloat) {
      number = integer_to_float64(from, number);
    }
    if (to.kind == Kind::kFloat) number = from_float64(to.form, number).value_or(0);
    std::memcpy(out.data() + i * to.width(), &number, to.width());
  }
  return out;
}

std::optional<uint64_t> find_nan(DType dtype, Bytes values) noexcept {
  const NumberType* type = find_number(dtype);
  if (type == nullptr || type->kind != Kind::kFloat) return {};
  return with_element(type->width(), [&]<class Element>(Element) -> std::optional<uint64_t> {
    for (size_t i = 0; i < values.size() / sizeof(Element); ++i) {
      const uint64_t raw = load_le<Element>(values.data() + i * sizeof(Element));
      if (is_nan64(to_float64(type->form, raw))) return i;
    }
    return {};
  });
}

std::string checksum(Bytes positions, DType dtype, Bytes values) {
  const uint64_t of_values = xor_as_float64(*find_number(dtype), values);
  return decimal_65_bits(of_values >> 63 != 0, of_values << 1 ^ xor_of_bytes(positions));
}

}  // namespace deltawire::gen1
