// Terms of sum128 by the threads of a warp, for kernels that have the bytes in their registers: a
// segment of 512 bytes at a time, sixteen to a thread.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/sum_math.h"

namespace deltawire::cuda {

// Thread t has words 2 t and 2 t + 1 of every segment, and so the same keys for all.
struct ThreadWordKeys {
  uint64_t keys[sum128::kLanes][2];

  static __device__ ThreadWordKeys make() {
    ThreadWordKeys made;
#pragma unroll
    for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) {
        made.keys[lane][i] = sum128::word_key(lane, 2 * lane_id() + i);
      }
    }
    return made;
  }
};

// Of sixteen segments: thread t has the key of segment t / 2 for lane t % 2.
struct SegmentKeys {
  static constexpr unsigned kCount = kWarp / sum128::kLanes;
  uint64_t made;
  // Of segments `first` to `first` + 15.
  __device__ explicit SegmentKeys(uint64_t first)
      : made(sum128::segment_key(lane_id() % 2, first + lane_id() / 2)) {}
  // `segment` is where this thread's one lies.
  static __device__ SegmentKeys placed(uint64_t segment) {
    return SegmentKeys(segment - lane_id() / 2);
  }
  // All threads of the warp ask, each for any of them.
  __device__ uint64_t of(unsigned number, unsigned lane) const {
    return __shfl_sync(kAllLanes, made, 2 * number + lane);
  }
};

// What a thread has added up.
struct SumLanes {
  uint64_t sums[sum128::kLanes] = {};

  // Its sixteen bytes of segment `number` of those.
  __device__ void add(const uint4& bytes, const ThreadWordKeys& words, const SegmentKeys& segments,
                      unsigned number) {
    const auto first = element_of<uint64_t>(bytes, 0), second = element_of<uint64_t>(bytes, 1);
#pragma unroll
    for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
      sums[lane] += segments.of(number, lane) * (sum128::product(first, words.keys[lane][0]) +
                                                 sum128::product(second, words.keys[lane][1]));
    }
  }
  // The same where the array ends after `count` of them, which may be none.
  __device__ void add_some(const uint4& bytes, uint32_t count, const ThreadWordKeys& words,
                           const SegmentKeys& segments, unsigned number) {
#pragma unroll
    for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
      const uint64_t key = segments.of(number, lane);
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) {
        if (count <= 8 * i) continue;
        const unsigned missing = count >= 8 * i + 8 ? 0 : 8 * i + 8 - count;
        const uint64_t word = element_of<uint64_t>(bytes, i) & ~uint64_t{0} >> (8 * missing);
        sums[lane] += key * sum128::product(word, words.keys[lane][i]);
      }
    }
  }
  // Adds those of the warp to both lanes of an array.
  __device__ void add_warp_to(uint64_t* both) {
    join_warp();
    if (lane_id() >= sum128::kLanes) return;
    atomicAdd(reinterpret_cast<unsigned long long*>(both) + lane_id(),
              lane_id() == 0 ? sums[0] : sums[1]);
  }
  // Of all threads of the warp.
  __device__ void join_warp() {
#pragma unroll
    for (uint64_t& sum : sums) {
#pragma unroll
      for (unsigned step = 1; step < kWarp; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    }
  }
};

}  // namespace deltawire::cuda
