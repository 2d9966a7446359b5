// Logarithms in integers: the encoder's choices and the decoder's tables must come out the same on
// every machine, so no floating point takes part.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace deltawire {

inline constexpr unsigned kLogFraction = 16;

namespace detail {

// log2(1 + i/256) in Q16, by repeated squaring.
constexpr std::array<uint32_t, 258> make_log_table() {
  std::array<uint32_t, 258> table{};
  for (uint64_t i = 0; i < 258; ++i) {
    uint64_t x = (256 + i) << 23;  // Q31, in [1, 2]
    uint32_t result = 0;
    for (unsigned bit = 0; bit < kLogFraction; ++bit) {
      if (i >= 256) break;
      x = (x >> 8) * (x >> 8) >> 15;
      result <<= 1;
      if (x >> 32) {
        result |= 1;
        x >>= 1;
      }
    }
    table[i] = i >= 256 ? 1U << kLogFraction : result;
  }
  return table;
}

inline constexpr auto kLogTable = make_log_table();

}  // namespace detail

// log2(x) in Q16 for x >= 1; 0 for x = 0.
constexpr uint32_t log2_q16(uint64_t x) noexcept {
  if (x == 0) return 0;
  const unsigned exponent = 63U - unsigned(std::countl_zero(x));
  const uint64_t fraction = (x << (63 - exponent)) << 1;  // the bits below the leading one, Q64
  const uint32_t index = uint32_t(fraction >> 56), rest = uint32_t(fraction >> 40) & 0xffff;
  const uint32_t low = detail::kLogTable[index], high = detail::kLogTable[index + 1];
  return (exponent << kLogFraction) + low + uint32_t((uint64_t(high - low) * rest) >> 16);
}

// x * log2(x) in Q16: the building block of every code length.
constexpr uint64_t xlogx_q16(uint64_t x) noexcept { return x * log2_q16(x); }

}  // namespace deltawire
