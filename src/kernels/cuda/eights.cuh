// Eight neighbouring weights in the registers of a thread, and the elements that they become.
#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/fp8_values.cuh"

namespace deltawire::cuda {

inline constexpr unsigned kEight = 8;

// Eight weights of a thread, as F32.
struct WideEight {
  uint4 words[2];
  __device__ void load(const void* data, uint64_t i) {
    const auto* const at = reinterpret_cast<const uint4*>(static_cast<const float*>(data) + i);
    words[0] = __ldcs(at);
    words[1] = __ldcs(at + 1);
  }
  __device__ uint32_t largest() const {
    uint32_t all = 0;
#pragma unroll
    for (unsigned j = 0; j < kEight; ++j) all = max(all, (&words[0].x)[j] & 0x7fffffffU);
    return all;
  }
  __device__ uint2 quantised(float inverse) const {
    uint32_t pairs[4];
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) pairs[j] = two_elements(at(2 * j), at(2 * j + 1), inverse);
    return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
  }
  __device__ float at(unsigned j) const { return __uint_as_float((&words[0].x)[j]); }
};

// As BF16.
struct NarrowEight {
  uint4 words;
  __device__ void load(const void* data, uint64_t i) {
    words = __ldcs(reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + i));
  }
  __device__ uint32_t largest() const {  // of both halves
    const uint32_t mask = 0x7fff7fffU;
    const uint32_t both = __vmaxu2(__vmaxu2(words.x & mask, words.y & mask),
                                   __vmaxu2(words.z & mask, words.w & mask));
    return max(both & 0xffffU, both >> 16) << 16;
  }
  __device__ uint2 quantised(float inverse) const {
    const auto pair = [&](uint32_t word) {
      return two_elements(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000U),
                          inverse);
    };
    return {pair(words.x) | pair(words.y) << 16, pair(words.z) | pair(words.w) << 16};
  }
  // By one instruction for two of them: with integers, that is what would be waited for. Of a NaN
  // it makes another NaN, and the block is refused all the same.
  static __device__ NarrowEight rounded(const WideEight& wide) {
    const auto two = [&](unsigned j) {
      const __nv_bfloat162 both = __floats2bfloat162_rn(wide.at(j), wide.at(j + 1));
      return reinterpret_cast<const uint32_t&>(both);
    };
    return {{two(0), two(2), two(4), two(6)}};
  }
};

// BF16 or F32, as F32.
template <bool kNarrow>
__device__ void load_eight(const void* data, uint64_t i, float* out) {
  if constexpr (kNarrow) {
    NarrowEight eight;
    eight.load(data, i);
#pragma unroll
    for (unsigned j = 0; j < kEight; ++j) {
      const uint32_t word = (&eight.words.x)[j / 2];
      out[j] = __uint_as_float(j % 2 == 0 ? word << 16 : word & 0xffff0000U);
    }
  } else {
    WideEight eight;
    eight.load(data, i);
#pragma unroll
    for (unsigned j = 0; j < kEight; ++j) out[j] = eight.at(j);
  }
}

}  // namespace deltawire::cuda
