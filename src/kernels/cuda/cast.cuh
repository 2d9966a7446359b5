// New weights as they are read: of the old type already, wider floats that round to bf16, or FP8 of
// which is known what has changed.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/diff.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/fp8_values.cuh"
#include "kernels/cuda/marked.h"

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

  // What stands against `old_bits`, which are from element i on.
  __device__ uint4 beside(const uint4&, const void*, uint64_t) const { return rounded(); }
};

__device__ inline uint8_t make_marked(const MarkedFp8& array, uint64_t i) {
  const uint64_t row = i / array.columns, column = i % array.columns;
  const float scale =
      array.scales[row / array.block_rows * array.columns_of_blocks + column / array.block_columns];
  const float weight = __uint_as_float(load_bits(array.from, array.weights, i));
  return uint8_t(two_elements(weight, 0, __frcp_rn(scale)));
}

template <>
struct NewBits<uint8_t, NewKind::kMarkedFp8> {
  static constexpr unsigned kVectors = 1;
  uint32_t marks;

  __device__ void load(const void* data, uint64_t i) {
    marks = static_cast<const MarkedFp8*>(data)->changed[i / 32] >> (i % 32) & 0xffff;
  }
  __device__ uint4 beside(const uint4& old_bits, const void* data, uint64_t i) const {
    uint32_t words[4] = {old_bits.x, old_bits.y, old_bits.z, old_bits.w};
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
      for (uint32_t left = marks >> (4 * w) & 15; left != 0; left &= left - 1) {
        const unsigned j = __ffs(int(left)) - 1;
        const uint32_t made = make_marked(*static_cast<const MarkedFp8*>(data), i + 4 * w + j);
        words[w] = (words[w] & ~(0xffU << (8 * j))) | made << (8 * j);
      }
    }
    return {words[0], words[1], words[2], words[3]};
  }
};

// One new element.
template <class T, NewKind kKind>
__device__ T load_new(const void* data, uint64_t i) {
  if constexpr (kKind == NewKind::kSame) {
    return load_element<T>(data, i);
  } else if constexpr (kKind == NewKind::kF32AsBf16) {
    return T(bf16_of_f32(load_element<uint32_t>(data, i)));
  } else if constexpr (kKind == NewKind::kMarkedFp8) {
    return make_marked(*static_cast<const MarkedFp8*>(data), i);
  } else {
    return T(bf16_of_f32(f32_of_f16(load_element<uint16_t>(data, i))));
  }
}

}  // namespace deltawire::cuda
