// Arrays as they are hashed: their bytes, or those of the bf16 that wider floats round to.
#pragma once

#include <type_traits>

#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/elements.cuh"

namespace deltawire::cuda {

// The last of several arrays whose share begins at or before `at`; `first` says where each begins.
template <class Array>
__device__ uint32_t owner_of(const Array* arrays, uint32_t num_arrays, uint64_t Array::*first,
                             uint64_t at) {
  uint32_t low = 0, high = num_arrays;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (arrays[middle].*first <= at ? low : high) = middle;
  }
  return low;
}

// Elements count as bytes unless they are rounded.
template <NewKind kKind>
struct HashedBytes {
  using Element = std::conditional_t<kKind == NewKind::kSame || kKind == NewKind::kMarkedFp8,
                                     uint8_t, uint16_t>;
  using Bits = NewBits<Element, kKind>;  // sixteen of them, at aligned addresses

  // Sixteen of them at any alignment.
  static __device__ uint4 load_any(const void* data, uint64_t byte) {
    static_assert(kKind != NewKind::kMarkedFp8);
    if constexpr (kKind == NewKind::kSame) {
      const uint8_t* const at = static_cast<const uint8_t*>(data) + byte;
      const uint64_t low = load_element<uint64_t>(at, 0), high = load_element<uint64_t>(at, 1);
      return {uint32_t(low), uint32_t(low >> 32), uint32_t(high), uint32_t(high >> 32)};
    } else {
      uint32_t words[4];
#pragma unroll
      for (unsigned w = 0; w < 4; ++w) {
        const uint64_t i = byte / 2 + 2 * w;
        words[w] = load_new<uint16_t, kKind>(data, i) |
                   uint32_t(load_new<uint16_t, kKind>(data, i + 1)) << 16;
      }
      return {words[0], words[1], words[2], words[3]};
    }
  }

  // Up to eight of them as a word; the others are zero.
  static __device__ uint64_t load_word(const void* data, uint64_t byte, unsigned count) {
    uint64_t word = 0;
    for (unsigned b = 0; b < count; b += sizeof(Element)) {
      word |= uint64_t{load_new<Element, kKind>(data, (byte + b) / sizeof(Element))} << (8 * b);
    }
    return word;
  }
};

}  // namespace deltawire::cuda
