// sum128 of a step of a block's elements, as their thread block has them.
#pragma once

#include "kernels/cuda/hashed_bytes.cuh"
#include "kernels/cuda/staged_rows.cuh"
#include "kernels/cuda/sum_key_table.cuh"

namespace deltawire::cuda {

// A step comes in rounds of sixteen bytes to a thread, as with_chunks() has them; the 512 of a warp
// in pieces that lie in one segment each. A warp has sixteen pieces at most.
template <class T, class Step>
struct StepSums {
  static constexpr uint32_t kRound = Step::kThreads * 16 / sizeof(T);
  static constexpr unsigned kRounds = Step::kElements / kRound;
  static_assert(kRounds > 0 && kRounds <= SegmentKeys::kCount);
  static constexpr uint32_t kMinPiece =
      kRounds * uint32_t(sum128::kSegmentBytes) / SegmentKeys::kCount;

  // Adds elements [first, first + count) of a block with pieces of kMinPiece at least: load(i)
  // gives what the thread has in round i.
  template <class Load>
  static __device__ void add(const BlockPlace& place, uint32_t first, uint32_t count,
                             const Load& load, SumLanes* lanes) {
    const unsigned shift = __ffs(int(place.piece_bytes<T>())) - 1;
    // In the array, where the warp has byte `at`.
    const auto byte_of = [&](uint32_t at) {
      const uint32_t in_round = threadIdx.x / kWarp * kSegment + at % kSegment;
      return place(first + at / kSegment * kRound + in_round / uint32_t(sizeof(T))) * sizeof(T);
    };
    const auto word_keys = [&](uint32_t at) {
      return load_word_keys(byte_of(at) / sum128::kWordBytes % sum128::kSegmentWords);
    };
    const auto segment_keys = [&] {
      return SegmentKeys::placed(byte_of(lane_id() / 2 << shift) / kSegment);
    };
    const uint64_t hop = place.hop(kRound) * sizeof(T);
    if (count == Step::kElements && hop != 0 && hop % kSegment == 0) {
      // The word keys are the same in each round. All loads are on their way before the first use.
      uint4 bytes[kRounds];
#pragma unroll
      for (unsigned i = 0; i < kRounds; ++i) bytes[i] = load(i);
      const ThreadWordKeys words = word_keys(lane_id() * 16);
      const SegmentKeys segments = segment_keys();
      const unsigned piece = lane_id() * 16 >> shift, pieces = kSegment >> shift;
#pragma unroll
      for (unsigned i = 0; i < kRounds; ++i) {
        lanes->add(bytes[i], words, segments, piece + i * pieces);
      }
      return;
    }
    const SegmentKeys segments = segment_keys();
#pragma unroll 1
    for (unsigned i = 0; i < kRounds; ++i) {
      const uint32_t at = i * kSegment + lane_id() * 16, before = i * kRound + threadIdx.x * kPer;
      const uint32_t left = count <= before ? 0 : (count - before) * uint32_t(sizeof(T));
      lanes->add_some(load(i), left, word_keys(at), segments, at >> shift);
    }
  }

 private:
  static constexpr uint32_t kSegment = sum128::kSegmentBytes, kPer = 16 / sizeof(T);
};

// The words that begin among elements [first, first + count) of a block, one by one: load(byte, i)
// gives the word at that byte of the array, where element first + i is.
template <class T, class Load>
__device__ void add_words(const BlockPlace& place, uint32_t first, uint32_t count, const Load& load,
                          SumLanes* lanes) {
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const uint64_t byte = place(first + i) * sizeof(T);
    if (byte % sum128::kWordBytes != 0) continue;
    const uint64_t word = load(byte, i);
    for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
      lanes->sums[lane] += sum128::term(lane, byte / sum128::kWordBytes, word);
    }
  }
}

// Adds a step's elements as they are in memory now: what the thread block has just written is in
// the second-level cache, and so is what it has just read. Of rows that are not whole words nothing
// is added: others write to the same words.
template <class T, class Step>
__device__ void add_written(const void* data, const BlockPlace& place, uint32_t first,
                            uint32_t count, SumLanes* lanes) {
  using Sums = StepSums<T, Step>;
  const uint32_t piece = place.piece_bytes<T>();
  if (count == Step::kElements && is_aligned16(data) && piece >= Sums::kMinPiece) {
    with_chunks<T, Step::kThreads>(data, place, first, [&](const auto& at) {
      Sums::add(
          place, first, count, [&](unsigned i) { return __ldcg(at(i)); }, lanes);
    });
  } else if (piece >= sum128::kWordBytes) {
    const auto load = [&](uint64_t byte, uint32_t i) {
      const uint32_t left = (count - i) * uint32_t(sizeof(T));
      return HashedBytes<NewKind::kSame>::load_word(data, byte, min(left, 8U));
    };
    add_words<T>(place, first, count, load, lanes);
  }
}

}  // namespace deltawire::cuda
