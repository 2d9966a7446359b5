// The class scan of `tight`, a step of some elements at a time: it says how many elements of each
// class lie before each lane's, so that ranks and positions can be found.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/tight.h"

namespace deltawire::cuda {

// How a step is shared out: so many neighbours to a lane, in groups of eight.
template <unsigned kLane>
struct StepOf {
  static constexpr unsigned kLaneElements = kLane, kElements = kWarp * kLane;
  static constexpr unsigned kGroupElements = 8, kGroups = kLane / kGroupElements;
};

// In shared memory, one for each warp.
template <class Step>
struct WarpScan {
  uint32_t one_hot[256];                        // 1 << 4 class, by key
  uint32_t group_counts[Step::kGroups][kWarp];  // a nibble for each class
  uint16_t before[kMaxClasses][kWarp + 2];      // elements of a class in lanes before this one
};

template <class T>
__device__ uint32_t key_of(const TightKeys& keys, T value) {
  return uint32_t(value >> keys.key_shift) & keys.key_mask;
}

template <class Step>
__device__ void prepare_scan(const TightKeys& keys, WarpScan<Step>* scan) {
  __syncwarp();
  for (unsigned key = lane_id(); key < 256; key += kWarp) {
    scan->one_hot[key] = 1U << (4 * keys.class_of_key[key]);
  }
  __syncwarp();
}

// The eight classes' totals of a step: two to a word.
struct StepTotals {
  uint32_t pairs[4];  // classes (0, 4) (2, 6) (1, 5) (3, 7)

  __device__ uint32_t of_class(unsigned c) const {
    const uint32_t even = (c & 2) != 0 ? pairs[1] : pairs[0];
    const uint32_t odd = (c & 2) != 0 ? pairs[3] : pairs[2];
    const uint32_t pair = (c & 1) != 0 ? odd : even;
    return (c & 4) != 0 ? pair >> 16 : pair & 0xffff;
  }
};

// From each lane's own counts, which are in scan->group_counts, to those before it.
template <class Step>
__device__ StepTotals finish_scan(const uint32_t (&groups)[Step::kGroups], WarpScan<Step>* scan) {
  const unsigned lane = lane_id();
  uint32_t even = 0, odd = 0;
#pragma unroll
  for (unsigned g = 0; g < Step::kGroups; ++g) {
    scan->group_counts[g][lane] = groups[g];
    even += groups[g] & 0x0f0f0f0fU;
    odd += groups[g] >> 4 & 0x0f0f0f0fU;
  }
  const uint32_t own[4] = {even & 0x00ff00ffU, even >> 8 & 0x00ff00ffU, odd & 0x00ff00ffU,
                           odd >> 8 & 0x00ff00ffU};
  StepTotals totals;
#pragma unroll
  for (unsigned p = 0; p < 4; ++p) {
    uint32_t through = own[p];
#pragma unroll
    for (unsigned d = 1; d < kWarp; d *= 2) {
      const uint32_t left = __shfl_up_sync(kAllLanes, through, d);
      through += lane >= d ? left : 0;
    }
    totals.pairs[p] = __shfl_sync(kAllLanes, through, kWarp - 1);
    const uint32_t before = through - own[p];
    constexpr unsigned kFirst[4] = {0, 2, 1, 3};
    scan->before[kFirst[p]][lane] = uint16_t(before);
    scan->before[kFirst[p] + 4][lane] = uint16_t(before >> 16);
  }
  __syncwarp();
  return totals;
}

// The class of element j of a row, one-hot. Keys are turned to where they count words, so that a
// rotation, a mask and a load are all it takes.
template <class T, class Step, class Rows>
__device__ uint32_t one_hot_of(const Rows& rows, unsigned lane, unsigned j, const TightKeys& keys,
                               const WarpScan<Step>& scan) {
  constexpr unsigned kPer = 16 / sizeof(T);
  const uint4& chunk = rows.chunk(lane, j / kPer);
  if constexpr (sizeof(T) == 8) {
    return scan.one_hot[key_of(keys, element_of<T>(chunk, j % kPer))];
  } else {
    const unsigned byte = j % kPer * sizeof(T);
    const uint32_t word = word_of(chunk, byte / 4);
    const uint32_t turned = __funnelshift_r(word, word, byte % 4 * 8 + keys.key_shift - 2);
    const char* const table = reinterpret_cast<const char*>(scan.one_hot);
    return *reinterpret_cast<const uint32_t*>(table + (turned & uint32_t(keys.key_mask) << 2));
  }
}

// Counts a lane's elements by class, eight at a time. `count` of the step's elements are there.
template <class T, class Step, class Rows>
__device__ void count_groups(const Rows& rows, uint32_t count, const TightKeys& keys,
                             const WarpScan<Step>& scan, uint32_t (&groups)[Step::kGroups]) {
  const unsigned lane = lane_id();
  if (count == Step::kElements) {
#pragma unroll
    for (unsigned g = 0; g < Step::kGroups; ++g) {
      uint32_t sum = 0;
#pragma unroll
      for (unsigned j = 0; j < Step::kGroupElements; ++j) {
        sum += one_hot_of<T, Step>(rows, lane, g * Step::kGroupElements + j, keys, scan);
      }
      groups[g] = sum;
    }
    return;
  }
  for (unsigned g = 0; g < Step::kGroups; ++g) {
    uint32_t sum = 0;
    for (unsigned j = 0; j < Step::kGroupElements; ++j) {
      const uint32_t i = lane * Step::kLaneElements + g * Step::kGroupElements + j;
      if (i < count) sum += scan.one_hot[key_of(keys, rows.template element<T>(i))];
    }
    groups[g] = sum;
  }
}

}  // namespace deltawire::cuda
