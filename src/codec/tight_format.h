// The constants of a `tight` payload, shared by its writer and its reader. All of them go to disk
// or shape what does: docs/format.md, "tight", says how, field by field and in the same order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "codec/bit_io.h"
#include "codec/rans.h"
#include "kernels/kernels.h"

namespace deltawire::tight {

// Blocks decode independently of each other.
inline constexpr unsigned kMinBlockLog2 = 12, kMaxBlockLog2 = 20, kBlockLog2 = 18;
inline constexpr unsigned kNumStates = 2;  // interleaved rANS states of a block
inline constexpr size_t kStateBytes = 4 * kNumStates;
inline constexpr size_t kMaxContexts = 16;

// ---- gaps: a token and raw bits. Gaps below 8 are tokens; above, a token is the leading three
// bits.
struct GapToken {
  uint32_t token;
  unsigned raw_bits;
};
inline GapToken gap_token(uint32_t gap) {  // without a branch: both kinds are common
  const unsigned raw_bits = 29U - unsigned(std::countl_zero(gap | 4));
  return {4 * raw_bits + (gap >> raw_bits), raw_bits};
}
inline uint32_t gap_base(uint32_t token, unsigned* raw_bits) {
  *raw_bits = token < 8 ? 0 : 1 + (token - 8) / 4;
  return token < 8 ? token : (4 + (token & 3)) << *raw_bits;
}
// The table for a change probability of 2^(-q/16). Its last symbol escapes to a raw gap of
// kMaxBlockLog2 bits. Built once per process; the same on every machine.
const RansTable& gap_table(uint8_t q);

// ---- values: d = new - old, modulo the width. Narrow elements code small steps exactly
// (|d| = token + 1); wide ones code the length of |d| and its bits below the leading one raw.
// What has no token escapes: whether the top bit flipped and the length of the rest.
template <class T>
inline constexpr bool kLinearSteps = sizeof(T) <= 2;
template <class T>
inline constexpr uint32_t kNumSteps = kLinearSteps<T> ? 16 : sizeof(T) * 8;
template <class T>
inline constexpr uint32_t kNumValueTokens = kNumSteps<T> + 1;
template <class T>
inline constexpr uint32_t kEscapeToken = kNumSteps<T>;
template <class T>
inline constexpr uint32_t kNumEscapes = sizeof(T) * 16;
// The same for a width known at run time.
inline uint32_t num_value_tokens(uint8_t width) { return width <= 2 ? 17 : width * 8U + 1; }
inline uint32_t num_escapes(uint8_t width) { return width * 16U; }
inline constexpr uint32_t kMaxValueTokens = 65, kMaxEscapes = 128;

template <class T>
inline constexpr T kTopBit = T(T{1} << (sizeof(T) * 8 - 1));
template <class T>
inline T magnitude(T d) {
  return (d & kTopBit<T>) != 0 ? T(T{0} - d) : d;
}

// ---- tables of values: each symbol's weight is 2^(0.4 code); code 0 is the least weight that can
// still be coded.
inline constexpr uint8_t kMaxCode = 31;
void build_coded_table(const uint8_t* codes, uint32_t num_symbols, RansTable* table);

// ---- counts of changes per class and block
// Changes expected in a block of n elements, given 2^(mean_code / 12) in a full one.
inline uint32_t mean_count(uint8_t mean_code, size_t n, unsigned block_log2) {
  constexpr uint32_t kRoot[12] = {65536, 69432, 73561,  77935,  82570,  87480,
                                  92681, 98193, 104031, 110217, 116771, 123715};
  return uint32_t(((uint64_t(kRoot[mean_code % 12]) << (mean_code / 12)) >> 4) * uint64_t(n) >>
                  (12 + block_log2));
}
inline unsigned rice_bits(uint32_t mean) {
  return (32U - unsigned(std::countl_zero(mean | 1))) / 2;
}
inline constexpr unsigned kRiceLimit = 20;  // longer prefixes give way to the count itself

// Both sides know a block's count: where it is over four sigma off the mean, the gap table follows.
inline uint8_t block_q(uint8_t q, uint32_t mean, uint32_t count) {
  const int64_t off = int64_t(count) - int64_t(mean);
  if (count == 0 || off * off <= 16 * (int64_t(mean) + 1)) return q;
  const auto log16 = [](uint32_t x) {
    const unsigned exponent = 31U - unsigned(std::countl_zero(x | 1));
    return int(16 * exponent + (((uint64_t(x) << 8 >> exponent) & 255) >> 4));
  };
  const int shifted = int(q) + log16(mean) - log16(count);
  return uint8_t(shifted < 0 ? 0 : shifted > 255 ? 255 : shifted);
}

}  // namespace deltawire::tight
