// A scan of a block of `tight` for the elements that have the ranks: a thread block goes through
// its weights, a step after the other.
#pragma once

#include "kernels/cuda/staged_rows.cuh"
#include "kernels/cuda/tight_decode.h"
#include "kernels/cuda/tight_scan.cuh"

namespace deltawire::cuda {

inline constexpr unsigned kScanThreads = 256;

// In shared memory, one for each thread block.
template <class T, class Step>
struct LocateMemory {
  StagedRows<T, Step::kLaneElements, kScanThreads> rows;
  StepScan<Step> scan;
};

// Of the last of `count` places, a power of two, whose value is not above `rank`: its number.
template <unsigned kCount, class ValueAt>
__device__ unsigned last_reached(uint32_t rank, const ValueAt& value_at) {
  unsigned found = 0;
#pragma unroll
  for (unsigned d = kCount / 2; d != 0; d /= 2) found += value_at(found + d) <= rank ? d : 0;
  return found;
}

// The number of the bit that has `rank` others below it, in eight.
__device__ inline unsigned bit_with_rank(uint32_t mask, uint32_t rank) {
  unsigned at = 0;
#pragma unroll
  for (unsigned d = 4; d != 0; d /= 2) {
    const uint32_t below = __popc(mask >> at & ((1U << d) - 1));
    const bool above = rank >= below;
    rank -= above ? below : 0;
    at += above ? d : 0;
  }
  return at;
}

// The element of class c that has `rank` others of its class before it among those of `warp`.
template <class T, class Step>
__device__ uint32_t locate_in_warp(const LocateMemory<T, Step>& memory, KeyBits keys, unsigned c,
                                   unsigned warp, uint32_t rank) {
  const auto& scan = memory.scan;
  const unsigned first_thread = warp * kWarp;
  const unsigned owner = first_thread + last_reached<kWarp>(rank, [&](unsigned t) {
                           return scan.before_of(c, first_thread + t);
                         });
  rank -= scan.before_of(c, owner);
  const unsigned group =
      last_reached<Step::kGroups>(rank, [&](unsigned g) { return scan.earlier_of(c, owner, g); });
  rank -= scan.earlier_of(c, owner, group);
  const uint32_t first = owner * Step::kLaneElements + group * Step::kGroupElements;
  return first + bit_with_rank(class_mask<T>(memory.rows, first, keys, scan, c), rank);
}

// A block's weights, a step after the other.
template <class T, class Step>
class BlockScan {
 public:
  __device__ BlockScan(const TightDecodeArray& array, const TightDecodeBlock& block,
                       LocateMemory<T, Step>* memory)
      : memory_(*memory),
        keys_(array.keys),
        data_(block.data),
        place_(block.place),
        size_(block.num_elements),
        has_chunks_(has_chunks<T>(data_, place_)) {}

  __device__ bool at_end() const { return step_ >= size_; }
  // Fetches and counts a step. Between barriers.
  __device__ void count() {
    memory_.rows.fetch(data_, place_, step_, step_size(),
                       has_chunks_ && step_size() == Step::kElements);
    await_fetch();
    __syncthreads();
    const auto note = [&](unsigned g, const RowCounts& row) { memory_.scan.note(g, row); };
    const auto& rows = memory_.rows;
    const RowCounts row =
        step_size() == Step::kElements
            ? count_row<T, Step>([&](unsigned i) { return rows.chunk(threadIdx.x, i); }, keys_,
                                 memory_.scan.one_hot, note)
            : count_row_in_part<T, Step>(rows, step_size(), keys_, memory_.scan.one_hot, note);
    finish_scan<Step>(row, &memory_.scan);
    __syncthreads();
  }
  __device__ void go_on() {
    __syncthreads();  // before the next step takes the place of this one
    step_ += Step::kElements;
  }

  __device__ uint32_t step() const { return step_; }  // its first element, in the block
  __device__ uint32_t step_size() const { return min(size_ - step_, uint32_t{Step::kElements}); }

  // Ranks of class c's elements in this step: where those of each warp begin, from `seen` on.
  // Returns where they end.
  __device__ uint32_t first_ranks(unsigned c, uint32_t seen, uint32_t* of_warp) const {
#pragma unroll
    for (unsigned w = 0; w < Step::kWarps; ++w) {
      of_warp[w] = seen;
      seen += memory_.scan.total_of(c, w);
    }
    return seen;
  }
  // The element of class c with this rank, in the step.
  __device__ uint32_t locate(unsigned c, uint32_t rank, const uint32_t* of_warp) const {
    unsigned warp = 0;
    uint32_t first = of_warp[0];
#pragma unroll
    for (unsigned w = 1; w < Step::kWarps; ++w) {
      if (rank >= of_warp[w]) {
        warp = w;
        first = of_warp[w];
      }
    }
    return locate_in_warp<T, Step>(memory_, keys_, c, warp, rank - first);
  }

 private:
  LocateMemory<T, Step>& memory_;
  const KeyBits keys_;
  void* const data_;
  const BlockPlace place_;
  const uint32_t size_;
  const bool has_chunks_;
  uint32_t step_ = 0;
};

}  // namespace deltawire::cuda
