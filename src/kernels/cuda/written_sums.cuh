// sum128 of a step of a block's elements, as their thread block has them.
#pragma once

#include "kernels/cuda/hashed_bytes.cuh"
#include "kernels/cuda/staged_rows.cuh"
#include "kernels/cuda/sum_key_table.cuh"

namespace deltawire::cuda {

// A warp's share of a step: kSegments times 512 bytes, sixteen at a time to a thread. They come in
// pieces that lie in one segment each, sixteen pieces at most.
template <class T, unsigned kSegments>
class StepSums {
 public:
  static_assert(kSegments > 0 && kSegments <= SegmentKeys::kCount);
  static constexpr uint32_t kMinPiece =
      kSegments * uint32_t(sum128::kSegmentBytes) / SegmentKeys::kCount;

  // Of the elements from `first` on, which is the same for the warp.
  __device__ StepSums(const BlockPlace& place, uint32_t first)
      : place_(place),
        first_(first),
        piece_(place.piece_bytes<T>()),
        words_(load_word_keys(2 * lane_id())),
        segments_(SegmentKeys::placed(byte_of(lane_id() / 2 * piece_) / sum128::kSegmentBytes)) {}

  // The thread's sixteen bytes number s; less than `kWhole`, the first `count` of them.
  template <bool kWhole>
  __device__ void add(const uint4& bytes, uint32_t count, unsigned s, SumLanes* lanes) {
    const uint32_t at = (s * kWarp + lane_id()) * 16;
    if (piece_ != sum128::kSegmentBytes) {  // else they are the same in each segment
      words_ = load_word_keys(byte_of(at) / sum128::kWordBytes % sum128::kSegmentWords);
    }
    const unsigned piece = at >> (__ffs(int(piece_)) - 1);
    if constexpr (kWhole) {
      lanes->add(bytes, words_, segments_, piece);
    } else {
      lanes->add_some(bytes, count, words_, segments_, piece);
    }
  }

 private:
  // In the array, where the share has byte `at`.
  __device__ uint64_t byte_of(uint32_t at) const {
    return place_(first_ + at / sizeof(T)) * sizeof(T);
  }

  const BlockPlace& place_;
  const uint32_t first_, piece_;
  ThreadWordKeys words_;
  const SegmentKeys segments_;
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
  constexpr unsigned kSegments = Step::kElements * sizeof(T) / sum128::kSegmentBytes / Step::kWarps;
  static_assert(kSegments % 2 == 0);
  using Sums = StepSums<T, kSegments>;
  const uint32_t piece = place.piece_bytes<T>();
  if (count == Step::kElements && is_aligned16(data) && piece >= Sums::kMinPiece) {
    const uint32_t own = first + threadIdx.x / kWarp * (Step::kElements / Step::kWarps);
    Sums sums(place, own);
    with_chunks<T>(data, place, own, [&](const auto& at) {
#pragma unroll
      for (unsigned s = 0; s < kSegments; s += 2) {
        const unsigned chunk = s * kWarp + lane_id();
        const uint4 one = __ldcg(at(chunk)), two = __ldcg(at(chunk + kWarp));
        sums.template add<true>(one, 16, s, lanes);
        sums.template add<true>(two, 16, s + 1, lanes);
      }
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
