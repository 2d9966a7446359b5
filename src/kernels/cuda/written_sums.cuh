// sum128 of what a thread block has written, a step of its elements at a time.
#pragma once

#include "kernels/cuda/hashed_bytes.cuh"
#include "kernels/cuda/sum_key_table.cuh"

namespace deltawire::cuda {

// Adds a step's elements as they are in memory now: what the thread block has just written is in
// the second-level cache, and so is what it has just read.
template <class T, class Step>
__device__ void add_written(const void* data, uint64_t first, uint32_t count, SumLanes* lanes) {
  constexpr uint32_t kStepBytes = Step::kElements * sizeof(T);
  constexpr unsigned kSegments = kStepBytes / sum128::kSegmentBytes / Step::kWarps;
  static_assert(kSegments % 2 == 0 && kSegments <= SegmentKeys::kCount);
  const unsigned first_segment = threadIdx.x / kWarp * kSegments;
  const uint64_t begin = first * sizeof(T) + first_segment * sum128::kSegmentBytes + lane_id() * 16;
  const uint64_t end = (first + count) * sizeof(T);
  const ThreadWordKeys words = load_word_keys();
  const SegmentKeys segments(first * sizeof(T) / sum128::kSegmentBytes + first_segment);
  const uint8_t* const bytes = static_cast<const uint8_t*>(data);
  if (count == Step::kElements && is_aligned16(data)) {
#pragma unroll
    for (unsigned s = 0; s < kSegments; s += 2) {
      const auto* const at = reinterpret_cast<const uint4*>(bytes + begin) + s * kWarp;
      const uint4 one = __ldcg(at), two = __ldcg(at + kWarp);
      lanes->add(one, words, segments, s);
      lanes->add(two, words, segments, s + 1);
    }
    return;
  }
#pragma unroll 1
  for (unsigned s = 0; s < kSegments; ++s) {
    using H = HashedBytes<NewKind::kSame>;
    const uint64_t at = begin + s * sum128::kSegmentBytes;
    const uint32_t left = at >= end ? 0 : uint32_t(min(uint64_t{16}, end - at));
    const uint64_t low = H::load_word(data, at, min(left, 8U));
    const uint64_t high = H::load_word(data, at + 8, left <= 8 ? 0 : left - 8);
    lanes->add_some({uint32_t(low), uint32_t(low >> 32), uint32_t(high), uint32_t(high >> 32)},
                    left, words, segments, s);
  }
}

}  // namespace deltawire::cuda
