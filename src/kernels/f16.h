// Wider floats as the f16 they round to, in integers: the same bits on every machine.
#pragma once

#include <cstdint>

namespace deltawire {

// To nearest even, as torch rounds; a NaN keeps its sign alone.
constexpr uint32_t f16_of_f32(uint32_t f32) {
  const uint32_t sign = f32 >> 16 & 0x8000, rest = f32 & 0x7fffffff;
  if (rest > 0x7f800000) return sign | 0x7e00;
  if (rest >= 0x47800000) return sign | 0x7c00;  // 65536 and more
  if (rest < 0x38800000) {                       // subnormal: multiples of 2^-24
    if (rest < 0x33000000) return sign;          // less than half of the smallest
    const uint32_t shift = 126 - (rest >> 23), whole = (rest & 0x7fffff) | 0x800000;
    const uint32_t half = 1U << (shift - 1), odd = whole >> shift & 1;
    return sign | (whole + half - 1 + odd) >> shift;
  }
  // What rounds up to 2^16 becomes infinity by itself.
  return sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
}

}  // namespace deltawire
