// Values of slime's first generation. A file has one array of values for all its parameters, in the
// dtype that torch promotes them to: bf16 beside f32 is stored as f32. The way back is exact or it
// is refused. Integers do all the work: the bits of NaN, -0 and subnormals survive, on any machine.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire::gen1 {

// Elements of arrays as numbers: a float of any form as the bits of the float64 that equals it.

// How a float is laid out, from its lowest bit: mantissa, exponent, sign.
struct FloatForm {
  unsigned exponent_bits = 0, mantissa_bits = 0;
  bool infinities = true;  // false: E4M3, whose one NaN is all ones

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr uint64_t max_exponent() const { return (uint64_t{1} << exponent_bits) - 1; }
  constexpr uint64_t mantissa_mask() const { return (uint64_t{1} << mantissa_bits) - 1; }
};

inline constexpr FloatForm kFloat64{11, 52};
inline constexpr uint64_t kQuietBit = uint64_t{1} << 51;

constexpr uint64_t float64_bits(uint64_t sign, uint64_t exponent, uint64_t mantissa) {
  return sign << 63 | exponent << 52 | mantissa;
}

// Of a float that no float64 can miss: every form but float64 itself, which is returned as it is.
// A NaN keeps its payload, signalling ones too.
constexpr uint64_t to_float64(FloatForm form, uint64_t raw) {
  const unsigned up = 52 - form.mantissa_bits;
  const uint64_t mantissa = raw & form.mantissa_mask();
  const uint64_t exponent = raw >> form.mantissa_bits & form.max_exponent();
  const uint64_t sign = raw >> (form.mantissa_bits + form.exponent_bits) & 1;
  if (up == 0) return raw;
  if (exponent == form.max_exponent() && (form.infinities || mantissa == form.mantissa_mask())) {
    return float64_bits(sign, 2047, mantissa << up);
  }
  if (exponent != 0) {
    return float64_bits(sign, exponent + 1023 - unsigned(form.bias()), mantissa << up);
  }
  if (mantissa == 0) return float64_bits(sign, 0, 0);
  // A subnormal: its highest one becomes the one that float64 does not write.
  const unsigned shift = unsigned(std::countl_zero(mantissa)) - (63 - form.mantissa_bits);
  return float64_bits(sign, 1024 - unsigned(form.bias()) - shift,
                      mantissa << shift << up & kFloat64.mantissa_mask());
}

// The inverse; none where no float of this form has that value.
constexpr std::optional<uint64_t> from_float64(FloatForm form, uint64_t bits) {
  const unsigned down = 52 - form.mantissa_bits;
  if (down == 0) return bits;
  const uint64_t mantissa = bits & kFloat64.mantissa_mask();
  const int exponent = int(bits >> 52 & 2047) - 1023 + form.bias();
  uint64_t raw = 0;
  if ((bits >> 52 & 2047) == 2047) {
    raw = form.max_exponent() << form.mantissa_bits | mantissa >> down;
  } else if (exponent >= 1 && uint64_t(exponent) <= form.max_exponent()) {
    raw = uint64_t(exponent) << form.mantissa_bits | mantissa >> down;
  } else if (exponent < 1 && exponent > -int(form.mantissa_bits)) {
    raw = (mantissa | uint64_t{1} << 52) >> (down + 1 - unsigned(exponent));
  }
  raw |= bits >> 63 << (form.mantissa_bits + form.exponent_bits);
  if (to_float64(form, raw) != bits) return {};
  return raw;
}

constexpr bool is_nan64(uint64_t bits) { return bits << 1 > uint64_t{2047} << 53; }

// Torch's conversion to float64 makes signalling NaN quiet; what is float64 already stays.
constexpr uint64_t as_converted(FloatForm form, uint64_t raw) {
  const uint64_t bits = to_float64(form, raw);
  return form.mantissa_bits != 52 && is_nan64(bits) ? bits | kQuietBit : bits;
}

// torch's names: "bfloat16". Empty, none: a dtype that the dialect's files cannot hold.
std::string_view torch_dtype_name(DType dtype) noexcept;
std::optional<DType> parse_torch_dtype(std::string_view name) noexcept;

// Whether every value of `narrow` can be stored in `wide` and had back.
bool holds_exactly(DType wide, DType narrow) noexcept;
// What torch makes of two arrays that it joins, if the values of both survive it.
std::optional<DType> promote_exactly(DType a, DType b) noexcept;

// `wide` holds `narrow` exactly. Corruption names the first value that `narrow` does not have.
Result<std::vector<uint8_t>> narrow_values(DType wide, DType narrow, Bytes values);
std::vector<uint8_t> widen_values(DType narrow, DType wide, Bytes values);

// Where the first NaN is; none: there is none.
std::optional<uint64_t> find_nan(DType dtype, Bytes values) noexcept;

// The dialect's checksum, as a decimal number of up to 65 bits: the XOR of all position bytes,
// and, one bit further up, the XOR of all values as float64.
std::string checksum(Bytes positions, DType dtype, Bytes values);

}  // namespace deltawire::gen1
