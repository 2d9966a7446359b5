// The integer arithmetic of `tight` that every implementation shares, on the CPU and on a GPU: how
// gaps and steps become tokens, and what a class's count says about its gaps. docs/format.md,
// "tight", has the same rules in words. All of it is constexpr: nvcc compiles it for both sides.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace deltawire {

// As std::countl_zero, which nvcc gets wrong on the device for 64 bits.
template <class T>
constexpr unsigned leading_zeros(T x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 8) return unsigned(__clzll(static_cast<long long>(x)));
  return unsigned(__clz(int(uint32_t(x)))) - (32 - 8 * sizeof(T));
#else
  return unsigned(std::countl_zero(x));
#endif
}

// ---- range ANS
inline constexpr unsigned kProbabilityBits = 12;
inline constexpr uint32_t kProbabilityOne = 1U << kProbabilityBits;
inline constexpr uint32_t kRansLow = 1U << 16;  // states live in [2^16, 2^32)
inline constexpr size_t kMaxSymbols = 160;

namespace tight {

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
constexpr GapToken gap_token(uint32_t gap) {  // without a branch: both kinds are common
  const unsigned raw_bits = 29U - leading_zeros(gap | 4);
  return {4 * raw_bits + (gap >> raw_bits), raw_bits};
}
constexpr uint32_t gap_base(uint32_t token, unsigned* raw_bits) {
  *raw_bits = token < 8 ? 0 : 1 + (token - 8) / 4;
  return token < 8 ? token : (4 + (token & 3)) << *raw_bits;
}

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
constexpr uint32_t num_value_tokens(uint8_t width) { return width <= 2 ? 17 : width * 8U + 1; }
constexpr uint32_t num_escapes(uint8_t width) { return width * 16U; }
inline constexpr uint32_t kMaxValueTokens = 65, kMaxEscapes = 128;

template <class T>
inline constexpr T kTopBit = T(T{1} << (sizeof(T) * 8 - 1));
template <class T>
constexpr T magnitude(T d) {
  return (d & kTopBit<T>) != 0 ? T(T{0} - d) : d;
}

// A value as symbols and raw bits.
template <class T>
struct Step {
  uint32_t token;
  uint32_t escape = 0;  // when token is kEscapeToken
  bool negative;
  unsigned raw_bits = 0;
  T raw = 0;
};

template <class T>
constexpr Step<T> make_step(T old_value, T step) {
  constexpr unsigned kBits = sizeof(T) * 8;
  const T size = magnitude(step);
  const bool flipped = ((old_value ^ T(old_value + step)) & kTopBit<T>) != 0;
  Step<T> out{0, 0, (step & kTopBit<T>) != 0, 0, 0};
  if constexpr (kLinearSteps<T>) {
    if (size <= kNumSteps<T>) {
      out.token = size - 1U;
      return out;
    }
  } else if (!flipped) {
    out.token = kBits - 1U - leading_zeros(size);
    out.raw_bits = out.token;
    out.raw = T(size & ((T{1} << out.raw_bits) - 1));
    return out;
  }
  // A sign flip moves the value by half the range; what is left of the step is small again.
  const T rest = flipped ? T(step ^ kTopBit<T>) : step;
  const T rest_size = magnitude(rest);
  const unsigned length = kBits - leading_zeros(rest_size);
  out.token = kEscapeToken<T>;
  out.escape = (flipped ? kBits : 0) + (length < kBits - 1 ? length : kBits - 1);
  out.negative = (rest & kTopBit<T>) != 0;
  out.raw_bits = length > 1 ? length - 1 : 0;
  out.raw = T(rest_size & ((T{1} << out.raw_bits) - 1));
  return out;
}

// ---- counts of changes per class and block
// Changes expected in a block of n elements, given 2^(mean_code / 12) in a full one.
constexpr uint32_t mean_count(uint8_t mean_code, size_t n, unsigned block_log2) {
  const uint32_t root[12] = {65536, 69432, 73561,  77935,  82570,  87480,
                             92681, 98193, 104031, 110217, 116771, 123715};
  return uint32_t(((uint64_t(root[mean_code % 12]) << (mean_code / 12)) >> 4) * uint64_t(n) >>
                  (12 + block_log2));
}
constexpr unsigned rice_bits(uint32_t mean) { return (32U - leading_zeros(mean | 1)) / 2; }
inline constexpr unsigned kRiceLimit = 20;  // longer prefixes give way to the count itself

// 16 log2(x), roughly.
constexpr int log16(uint32_t x) {
  const unsigned exponent = 31U - leading_zeros(x | 1);
  return int(16 * exponent + (((uint64_t(x) << 8 >> exponent) & 255) >> 4));
}
// Both sides know a block's count: where it is over four sigma off the mean, the gap table follows.
constexpr uint8_t block_q(uint8_t q, uint32_t mean, uint32_t count) {
  const int64_t off = int64_t(count) - int64_t(mean);
  if (count == 0 || off * off <= 16 * (int64_t(mean) + 1)) return q;
  const int shifted = int(q) + log16(mean) - log16(count);
  return uint8_t(shifted < 0 ? 0 : shifted > 255 ? 255 : shifted);
}

}  // namespace tight
}  // namespace deltawire
