// FP8 blocks: what a block's scale is, and what an element becomes. IEEE arithmetic in F32, the
// same bits on every machine; python/deltawire/quantize/fp8.py says the same in torch.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/bf16.h"

namespace deltawire {

// What weights are, and what they are rounded to before anything else.
enum class WideFloat : uint8_t { kBf16, kF32, kF32AsBf16 };
inline constexpr size_t kWideFloats = 3;

}  // namespace deltawire

namespace deltawire::fp8 {

inline constexpr float kLargest = 448;             // of E4M3
inline constexpr float kLeastAmax = 1e-4F;         // of a block: as in DeepGEMM, vLLM and SGLang
inline constexpr uint32_t kInfinity = 0x7f800000;  // bits of F32; NaNs are larger
inline constexpr uint32_t kLargestBits = 0x43e00000, kLeastNormalBits = 0x3c800000;

// The smallest power of two that is no smaller than a scale, which is no denormal: an amax is 1e-4
// at least.
constexpr float to_power_of_two(float scale) {
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  return std::bit_cast<float>(((bits >> 23) + ((bits & 0x7fffff) != 0 ? 1 : 0)) << 23);
}

// `amax`: the bits of the largest size in the block, an F32.
constexpr float scale_of(uint32_t amax, bool power_of_two) {
  const float largest = std::bit_cast<float>(amax);
  const float scale = (largest < kLeastAmax ? kLeastAmax : largest) / kLargest;
  return power_of_two ? to_power_of_two(scale) : scale;
}

constexpr float inverse_of(float scale) { return 1.0F / scale; }

// To nearest, ties to even; what is larger than the largest becomes that.
constexpr uint8_t e4m3_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 24 & 0x80;
  uint32_t size = bits & 0x7fffffff;
  if (size > kLargestBits) size = kLargestBits;
  if (size >= kLeastNormalBits) {
    return uint8_t(sign | (((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120U << 3)));
  }
  // Denormals are multiples of 2^-9: the unit in the last place of what is next to 2^14.
  constexpr float kUnit = 16384;
  const float shifted = std::bit_cast<float>(size) + kUnit;
  return uint8_t(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kUnit)));
}

// Element number i of an array at any address.
template <WideFloat kFrom>
float load(const void* data, size_t i) noexcept {
  if constexpr (kFrom == WideFloat::kBf16) {
    uint16_t bits;
    std::memcpy(&bits, static_cast<const uint8_t*>(data) + i * sizeof bits, sizeof bits);
    return std::bit_cast<float>(uint32_t{bits} << 16);
  } else {
    uint32_t bits;
    std::memcpy(&bits, static_cast<const uint8_t*>(data) + i * sizeof bits, sizeof bits);
    return std::bit_cast<float>(kFrom == WideFloat::kF32 ? bits : bf16_of_f32(bits) << 16);
  }
}

}  // namespace deltawire::fp8
