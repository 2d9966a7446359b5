// Elements in registers: sixteen bytes at a time where they are aligned, one by one where not.
#pragma once

#include <cstdint>

namespace deltawire::cuda {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

__device__ inline unsigned lane_id() { return threadIdx.x % kWarp; }
__device__ inline uint32_t lanes_before(uint32_t mask) {
  return __popc(mask & ((1U << lane_id()) - 1));
}

// Element i of an array at any alignment.
template <class T>
__device__ T load_element(const void* data, uint64_t i) {
  const uint8_t* at = static_cast<const uint8_t*>(data) + i * sizeof(T);
  if (reinterpret_cast<uintptr_t>(at) % sizeof(T) == 0) return *reinterpret_cast<const T*>(at);
  T value = 0;
  for (unsigned b = 0; b < sizeof(T); ++b) value |= T(T(at[b]) << (8 * b));
  return value;
}

template <class T>
__device__ void store_element(void* data, uint64_t i, T value) {
  uint8_t* at = static_cast<uint8_t*>(data) + i * sizeof(T);
  if (reinterpret_cast<uintptr_t>(at) % sizeof(T) == 0) {
    *reinterpret_cast<T*>(at) = value;
  } else {
    for (unsigned b = 0; b < sizeof(T); ++b) at[b] = uint8_t(value >> (8 * b));
  }
}

__device__ inline bool is_aligned16(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// Word j of four, j known only at run time, without a trip to memory.
__device__ inline uint32_t word_of(const uint4& v, unsigned j) {
  const uint32_t low = (j & 1) != 0 ? v.y : v.x, high = (j & 1) != 0 ? v.w : v.z;
  return (j & 2) != 0 ? high : low;
}

// Element j of sixteen bytes.
template <class T>
__device__ T element_of(const uint4& v, unsigned j) {
  if constexpr (sizeof(T) == 8) {
    return j == 0 ? uint64_t(v.y) << 32 | v.x : uint64_t(v.w) << 32 | v.z;
  } else {
    return T(word_of(v, j * sizeof(T) / 4) >> (8 * (j * sizeof(T) % 4)));
  }
}

// Bit j is set where element j of sixteen bytes differs.
template <class T>
__device__ uint32_t changed_mask(const uint4& a, const uint4& b) {
  const uint32_t x[4] = {a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (sizeof(T) == 2) {  // one instruction there: 1 for each half that is not zero
    uint32_t halves = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) halves += __vminu2(x[w], 0x00010001U) << (2 * w);
    return (halves | halves >> 15) & 0xff;
  }
#endif
  uint32_t mask = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (sizeof(T) == 1) {
      // Bit 7 of every byte that is not zero, then the four bits side by side.
      const uint32_t top = (((x[w] & 0x7f7f7f7fU) + 0x7f7f7f7fU) | x[w]) & 0x80808080U;
      mask |= ((top >> 7) * 0x10204080U >> 28) << (4 * w);
    } else if constexpr (sizeof(T) == 2) {
      const uint32_t top = (((x[w] & 0x7fff7fffU) + 0x7fff7fffU) | x[w]) & 0x80008000U;
      mask |= ((top >> 15 & 1) | top >> 30) << (2 * w);
    } else if constexpr (sizeof(T) == 4) {
      mask |= (x[w] != 0 ? 1U : 0U) << w;
    } else if (w % 2 == 0) {
      mask |= ((x[w] | x[w + 1]) != 0 ? 1U : 0U) << (w / 2);
    }
  }
  return mask;
}

// How many the lanes before this one have, given at most 31 each; `*total` of all.
template <unsigned kBits>
__device__ uint32_t count_before(uint32_t count, uint32_t* total) {
  uint32_t before = 0, all = 0;
#pragma unroll
  for (unsigned bit = 0; bit < kBits; ++bit) {
    const uint32_t ballot = __ballot_sync(kAllLanes, (count >> bit) & 1);
    before += lanes_before(ballot) << bit;
    all += __popc(ballot) << bit;
  }
  *total = all;
  return before;
}

}  // namespace deltawire::cuda
