// What coding and decoding blocks of `exponents` share: a thread block has a block, a warp a group
// at a time. A lane has two columns of it, its own and the one a warp further.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/exponents.h"
#include "kernels/cuda/warp_bits.cuh"

namespace deltawire::cuda {

inline constexpr unsigned kExponentsThreads = 256, kExponentsWarps = kExponentsThreads / kWarp;
inline constexpr unsigned kHalves = unsigned(kRowElements) / kWarp;

template <KeyForm kForm>
struct FormElement {
  using Type = uint16_t;
};
template <>
struct FormElement<KeyForm::k8of32> {
  using Type = uint32_t;
};

template <KeyForm kForm>
__device__ uint16_t top_of(typename FormElement<kForm>::Type element) {
  return uint16_t(element >> (8 * sizeof element - 16));
}

__device__ inline uint32_t num_groups(uint32_t num_elements) {
  return (num_elements + uint32_t(kGroupElements) - 1) / uint32_t(kGroupElements);
}

template <KeyForm kForm>
__device__ bool is_raw(const ExponentsBlock& block) {
  return block.coded_bytes == block.num_elements * uint32_t(key_planes::width(kForm));
}

// Turns counts[0 ... groups) into the sums of those before each; counts[groups] gets the sum of
// all. All threads; counts were written before it by any of them, and can be read after it.
__device__ inline void sum_before(uint32_t* counts, uint32_t groups) {
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const uint32_t each = (groups + kWarp - 1) / kWarp;
    const uint32_t begin = min(lane_id() * each, groups), end = min(begin + each, groups);
    uint32_t own = 0;
    for (uint32_t g = begin; g < end; ++g) own += counts[g];
    const uint32_t through = sum_through(own);
    uint32_t before = through - own;
    for (uint32_t g = begin; g < end; ++g) {
      const uint32_t count = counts[g];
      counts[g] = before;
      before += count;
    }
    if (lane_id() == kWarp - 1) counts[groups] = through;
  }
  __syncthreads();
}

}  // namespace deltawire::cuda
