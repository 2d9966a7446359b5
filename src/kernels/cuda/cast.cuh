// New weights as they are read: of the old type already, or wider floats that round to bf16.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/diff.h"
#include "kernels/cuda/elements.cuh"

namespace deltawire::cuda {

__device__ inline uint4 load_streaming(const void* at) {
  return __ldcs(static_cast<const uint4*>(at));
}

// The new elements that stand against sixteen bytes of old ones.
template <class T, NewKind kKind>
struct NewBits {
  static constexpr unsigned kVectors = kKind == NewKind::kF32AsBf16 ? 2 : 1;
  uint4 bits[kVectors];

  __device__ void load(const void* data, uint64_t i) {
    constexpr unsigned kBytes = kKind == NewKind::kF32AsBf16 ? 4 : sizeof(T);
    const uint8_t* at = static_cast<const uint8_t*>(data) + i * kBytes;
#pragma unroll
    for (unsigned v = 0; v < kVectors; ++v) bits[v] = load_streaming(at + 16 * v);
  }

  __device__ uint4 rounded() const {
    if constexpr (kKind == NewKind::kSame) {
      return bits[0];
    } else if constexpr (kKind == NewKind::kF32AsBf16) {
      const uint4 &a = bits[0], &b = bits[1];
      return {bf16_of_f32(a.x) | bf16_of_f32(a.y) << 16, bf16_of_f32(a.z) | bf16_of_f32(a.w) << 16,
              bf16_of_f32(b.x) | bf16_of_f32(b.y) << 16, bf16_of_f32(b.z) | bf16_of_f32(b.w) << 16};
    } else {
      const auto two = [](uint32_t w) {
        return bf16_of_f32(f32_of_f16(w & 0xffff)) | bf16_of_f32(f32_of_f16(w >> 16)) << 16;
      };
      const uint4& a = bits[0];
      return {two(a.x), two(a.y), two(a.z), two(a.w)};
    }
  }
};

// One new element.
template <class T, NewKind kKind>
__device__ T load_new(const void* data, uint64_t i) {
  if constexpr (kKind == NewKind::kSame) {
    return load_element<T>(data, i);
  } else if constexpr (kKind == NewKind::kF32AsBf16) {
    return T(bf16_of_f32(load_element<uint32_t>(data, i)));
  } else {
    return T(bf16_of_f32(f32_of_f16(load_element<uint16_t>(data, i))));
  }
}

}  // namespace deltawire::cuda
