// Wider floats as the bf16 they round to, in integers: the same bits on every machine. constexpr:
// nvcc compiles it for both sides.
#pragma once

#include <bit>
#include <cstdint>

namespace deltawire {

// To nearest even, as torch rounds on the CPU: a NaN becomes 0x7fc0.
constexpr uint32_t bf16_of_f32(uint32_t f32) {
  if ((f32 & 0x7fffffffU) > 0x7f800000U) return 0x7fc0;
  return (f32 + 0x7fffU + (f32 >> 16 & 1)) >> 16;
}

// Exact: every f16 is an f32.
constexpr uint32_t f32_of_f16(uint32_t f16) {
  const uint32_t sign = (f16 & 0x8000) << 16, exponent = f16 >> 10 & 31, fraction = f16 & 0x3ff;
  if (exponent == 31) return sign | 0x7f800000U | fraction << 13;
  if (exponent != 0) return sign | (exponent + 112) << 23 | fraction << 13;
  if (fraction == 0) return sign;
  const unsigned shift = unsigned(std::countl_zero(fraction)) - 21;  // up to the implicit bit
  return sign | (113 - shift) << 23 | (fraction << shift & 0x3ff) << 13;
}

}  // namespace deltawire
