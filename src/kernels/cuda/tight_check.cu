// Before blocks without coded classes are written: whether each class has as many elements as its
// ranks say. A thread block for each block.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/staged_rows.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/tight_decode_steps.h"
#include "kernels/cuda/tight_scan.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256, kResident = 8, kInFlight = 4;

// Counts of a thread's part of a block.
struct PartCounts {
  ClassCounts sum{};
  __device__ void add(const RowCounts& row) {
    const ClassCounts own = row.widened();
    for (unsigned p = 0; p < 4; ++p) sum.pairs[p] += own.pairs[p];
  }
};

template <class T>
__device__ void count_chunk(const uint4& chunk, KeyBits keys, const uint32_t* one_hot,
                            RowCounts* row) {
  constexpr unsigned kPer = 16 / sizeof(T), kGroup = kPer < 8 ? kPer : 8;
#pragma unroll
  for (unsigned g = 0; g < kPer; g += kGroup) {
    uint32_t sum = 0;
#pragma unroll
    for (unsigned j = 0; j < kGroup; ++j) sum += one_hot_of<T>(chunk, g + j, keys, one_hot);
    row->add(sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, kResident) check_blocks(TightDecodeWork work) {
  __shared__ uint32_t one_hot[256], totals[kMaxClasses];
  const TightDecodeBlock& block = work.blocks[blockIdx.x];
  if (block.only_units == 0) return;
  const TightDecodeArray& array = work.arrays[block.array];
  const KeyBits keys(array.keys);
  for (unsigned key = threadIdx.x; key < 256; key += kThreads) {
    one_hot[key] = 1U << (4 * array.keys.class_of_key[key]);
  }
  if (threadIdx.x < kMaxClasses) totals[threadIdx.x] = 0;
  if (__syncthreads_or(threadIdx.x == 0 && work.status->code != 0) != 0) return;

  constexpr uint32_t kRound = kThreads * 16 / sizeof(T);
  const BlockPlace place = block.place;
  const uint32_t num_rounds =
      has_chunks<T>(block.data, place) ? block.num_elements / kRound / kInFlight * kInFlight : 0;
  PartCounts part;
  with_chunks<T, kThreads>(block.data, place, 0, [&](const auto& at) {
    for (uint32_t round = 0; round < num_rounds; round += kInFlight) {
      uint4 bits[kInFlight];
#pragma unroll
      for (unsigned k = 0; k < kInFlight; ++k) bits[k] = __ldcs(at(round + k));
      RowCounts row;
#pragma unroll
      for (unsigned k = 0; k < kInFlight; ++k) count_chunk<T>(bits[k], keys, one_hot, &row);
      part.add(row);
    }
  });
  for (uint32_t i = num_rounds * kRound + threadIdx.x; i < block.num_elements; i += kThreads) {
    RowCounts row;
    row.add(one_hot[keys.of(load_element<T>(block.data, place(i)))]);
    part.add(row);
  }
#pragma unroll
  for (unsigned c = 0; c < kMaxClasses; ++c) {
    const uint32_t pair = part.sum.pairs[ClassCounts::pair_of(c)];
    const uint32_t own = ClassCounts::half_of(c) == 0 ? pair & 0xffff : pair >> 16;
    const uint32_t of_warp = __reduce_add_sync(kAllLanes, own);
    if (lane_id() == 0) atomicAdd(&totals[c], of_warp);
  }
  __syncthreads();
  if (threadIdx.x >= kMaxClasses) return;
  const unsigned c = threadIdx.x;
  const uint32_t first = c == 0 ? 0 : block.end[c - 1], last = block.end[c];
  if (first < last && work.ranks[block.first_change + last - 1] >= totals[c]) {
    fail(work.status, PatchError::kRankNotReached, block.array, block.number);
  }
}

}  // namespace

Status check_ranks(const TightDecodeWork& work, unsigned width, Stream stream) {
  return with_width(width, [&]<class T>() {
    check_blocks<T><<<work.num_blocks, kThreads, 0, stream>>>(work);
    return launched("check_blocks");
  });
}

}  // namespace deltawire::cuda
