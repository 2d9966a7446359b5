// Teams: so many neighbouring lanes of a warp, a power of two, look after a block of a payload
// together. All lanes of the warp have to call these.
#pragma once

#include "kernels/cuda/elements.cuh"

namespace deltawire::cuda {

template <unsigned kSize>
struct Team {
  static_assert(kSize <= kWarp && (kSize & (kSize - 1)) == 0);

  static __device__ unsigned member() { return lane_id() % kSize; }

  // Sum over this lane of the team and those before it.
  static __device__ uint32_t sum_through(uint32_t value) {
#pragma unroll
    for (unsigned d = 1; d < kSize; d *= 2) {
      const uint32_t left = __shfl_up_sync(kAllLanes, value, d, kSize);
      value += member() >= d ? left : 0;
    }
    return value;
  }
  // What member `from` has.
  template <class V>
  static __device__ V of(V value, unsigned from) {
    return __shfl_sync(kAllLanes, value, int(from), kSize);
  }
  static __device__ bool all(bool value) {
    constexpr uint32_t kMembers = kSize == kWarp ? kAllLanes : (1U << kSize % kWarp) - 1;
    return (__ballot_sync(kAllLanes, !value) >> (lane_id() - member()) & kMembers) == 0;
  }
};

}  // namespace deltawire::cuda
