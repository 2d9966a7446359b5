#include "kernels/cuda/digest.h"

#include <cuda_pipeline.h>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/hashed_bytes.cuh"
#include "kernels/xxh3_math.h"

namespace deltawire::cuda {
namespace {

using xxh3::kBlockBytes;
using xxh3::kLanes;
using xxh3::kScrambleKey;

constexpr unsigned kWarps = 8, kThreads = kWarps * kWarp;
constexpr unsigned kRun = 8;  // blocks that a warp sums, neighbours

// ---- sums

// The two lanes of the state that a thread works for, and its keys: thread t of a warp has bytes
// 16 t of either half of a block, which are of stripe t / 4 and of stripe t / 4 + 8.
struct ThreadKeys {
  uint64_t even[2], odd[2];
  __device__ explicit ThreadKeys(const uint64_t* secret) {
    const unsigned first = lane_id() / 4 + lane_id() % 4 * 2;
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      even[half] = secret[first + 8 * half];
      odd[half] = secret[first + 8 * half + 1];
    }
  }
};

struct Sum {
  uint64_t even = 0, odd = 0;
  __device__ void add(const uint4& bits, uint64_t even_key, uint64_t odd_key) {
    const uint64_t first = element_of<uint64_t>(bits, 0), second = element_of<uint64_t>(bits, 1);
    even += second + xxh3::folded(first, even_key);
    odd += first + xxh3::folded(second, odd_key);
  }
  // Over the stripes of a block; threads 0 to 3 have the outcome.
  __device__ void store(uint64_t* out) {
#pragma unroll
    for (unsigned step = 4; step < kWarp; step *= 2) {
      even += __shfl_xor_sync(kAllLanes, even, step);
      odd += __shfl_xor_sync(kAllLanes, odd, step);
    }
    if (lane_id() < 4) {
      reinterpret_cast<ulonglong2*>(out)[lane_id()] = make_ulonglong2(even, odd);
    }
  }
};

template <NewKind kKind>
__device__ void sum_run(const DigestArray& array, const ThreadKeys& keys, uint64_t block,
                        unsigned count, uint64_t* out) {
  using R = HashedBytes<kKind>;
  constexpr unsigned kInFlight = 4 / R::Bits::kVectors;  // blocks whose loads are under way
  const uint64_t start = block * kBlockBytes + lane_id() * 16;
  if (!is_aligned16(array.data)) {
#pragma unroll 1
    for (unsigned k = 0; k < count; ++k) {
      Sum sum;
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const uint64_t at = start + k * kBlockBytes + half * kBlockBytes / 2;
        sum.add(R::load_any(array.data, at), keys.even[half], keys.odd[half]);
      }
      sum.store(out + k * kLanes);
    }
    return;
  }
#pragma unroll 1
  for (unsigned k = 0; k < count; k += kInFlight) {
    typename R::Bits bits[kInFlight][2];
#pragma unroll
    for (unsigned j = 0; j < kInFlight; ++j) {
      const uint64_t block_at = start + min(k + j, count - 1) * kBlockBytes;
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const uint64_t at = block_at + half * kBlockBytes / 2;
        bits[j][half].load(array.data, at / sizeof(typename R::Element));
      }
    }
#pragma unroll
    for (unsigned j = 0; j < kInFlight; ++j) {
      Sum sum;
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        sum.add(bits[j][half].rounded(), keys.even[half], keys.odd[half]);
      }
      if (k + j < count) sum.store(out + (k + j) * kLanes);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 3)
    sum_blocks_of_turn(DigestWork work, uint64_t turn, uint64_t* sums) {
  const ThreadKeys keys(work.secret);
  uint64_t at = (uint64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp) * kRun;
  const uint64_t end = min(at + kRun, work.num_sums);
  if (at >= end) return;
  uint32_t owner = owner_of(work.arrays, work.num_arrays, &DigestArray::first_sum, at);
  while (at < end) {
    const DigestArray array = work.arrays[owner++];
    const uint64_t stop = min(end, array.first_sum + array.per_turn);
    if (stop <= at) continue;  // an array without blocks
    const uint64_t block = turn * array.per_turn + (at - array.first_sum);
    if (block < array.num_blocks) {
      const unsigned count = unsigned(min(stop - at, array.num_blocks - block));
      uint64_t* const out = sums + at * kLanes;
      if (array.kind == NewKind::kSame) {
        sum_run<NewKind::kSame>(array, keys, block, count, out);
      } else if (array.kind == NewKind::kF32AsBf16) {
        sum_run<NewKind::kF32AsBf16>(array, keys, block, count, out);
      } else {
        sum_run<NewKind::kF16AsBf16>(array, keys, block, count, out);
      }
    }
    at = stop;
  }
}

// ---- chains

constexpr unsigned kStep = 32, kStages = 4;  // blocks whose sums are fetched at a time; ahead

// The scramble and then the next block's sum, in halves: a step waits for a shift, a logic
// operation and one multiplication with an addition of the step before. The two instructions become
// one (IMAD.WIDE); from C++ the compiler makes two additions more, one after the other.
__device__ uint64_t scramble_and_add(uint64_t lane, uint64_t key, uint64_t sum) {
  constexpr uint32_t kPrime = uint32_t(xxh3::kPrime32_1);
  const uint32_t low = uint32_t(lane), high = uint32_t(lane >> 32);
  const uint32_t mixed = low ^ (high >> 15) ^ uint32_t(key);
  const uint32_t add_high = (high ^ uint32_t(key >> 32)) * kPrime + uint32_t(sum >> 32);
  uint32_t next_low, next_high;
  asm("mad.lo.cc.u32 %0, %2, %3, %4;\n\tmadc.hi.u32 %1, %2, %3, %5;"
      : "=&r"(next_low), "=r"(next_high)
      : "r"(mixed), "n"(kPrime), "r"(uint32_t(sum)), "r"(add_high));
  return uint64_t{next_high} << 32 | next_low;
}

struct SumRing {
  uint64_t sums[kStages][kStep * kLanes];

  __device__ void fetch(const uint64_t* from, uint64_t step, uint64_t count) {
    if (step * kStep < count) {
      const unsigned words = unsigned(min(uint64_t{kStep}, count - step * kStep)) * kLanes;
      for (unsigned i = lane_id() * 2; i < words; i += kWarp * 2) {
        __pipeline_memcpy_async(&sums[step % kStages][i], from + step * kStep * kLanes + i, 16);
      }
    }
    __pipeline_commit();  // also of nothing: steps are counted
  }
};

// A warp for each array; its 32 threads do the work of eight four times over.
__global__ void __launch_bounds__(kWarp)
    chain_blocks_of_turn(DigestWork work, uint64_t turn, const uint64_t* sums) {
  __shared__ __align__(16) SumRing ring;
  const DigestArray array = work.arrays[blockIdx.x];
  const uint64_t begin = turn * array.per_turn;
  const unsigned own = lane_id() % kLanes;
  uint64_t* const state = work.lanes + uint64_t{blockIdx.x} * kLanes + own;
  if (begin >= array.num_blocks) return;
  const uint64_t count = min(array.per_turn, array.num_blocks - begin);
  const uint64_t* const from = sums + array.first_sum * kLanes;
  for (unsigned stage = 0; stage + 1 < kStages; ++stage) ring.fetch(from, stage, count);

  const uint64_t key = work.secret[kScrambleKey + own];
  uint64_t lane = *state;
  for (uint64_t step = 0; step * kStep < count; ++step) {
    ring.fetch(from, step + kStages - 1, count);
    __pipeline_wait_prior(kStages - 1);
    __syncwarp();
    const uint64_t* const here = ring.sums[step % kStages] + own;
    lane += here[0];
    if (count - step * kStep >= kStep) {
#pragma unroll
      for (unsigned k = 1; k < kStep; ++k) lane = scramble_and_add(lane, key, here[k * kLanes]);
    } else {
      const unsigned rest = unsigned(count - step * kStep);
      for (unsigned k = 1; k < rest; ++k) lane = scramble_and_add(lane, key, here[k * kLanes]);
    }
    lane = scramble_and_add(lane, key, 0);
    __syncwarp();  // the stage is filled again
  }
  if (lane_id() < kLanes) *state = lane;
}

// ---- tails

template <NewKind kKind>
__device__ void copy_tail(const DigestArray& array, uint8_t* out) {
  using Element = typename HashedBytes<kKind>::Element;
  const uint64_t count = min(array.num_bytes, kDigestTail) / sizeof(Element);
  const uint64_t first = array.num_bytes / sizeof(Element) - count;
  for (uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
    reinterpret_cast<Element*>(out)[i] = load_new<Element, kKind>(array.data, first + i);
  }
}

__global__ void copy_tail_of_each(DigestWork work) {
  const DigestArray array = work.arrays[blockIdx.x];
  uint8_t* const out = work.tails + uint64_t{blockIdx.x} * kDigestTail;
  if (array.kind == NewKind::kSame) {
    copy_tail<NewKind::kSame>(array, out);
  } else if (array.kind == NewKind::kF32AsBf16) {
    copy_tail<NewKind::kF32AsBf16>(array, out);
  } else {
    copy_tail<NewKind::kF16AsBf16>(array, out);
  }
}

}  // namespace

Status sum_blocks(const DigestWork& work, uint64_t turn, uint64_t* sums, Stream stream) {
  if (work.num_sums == 0) return {};
  constexpr uint64_t kPerThreadBlock = kWarps * kRun;
  const uint64_t grid = (work.num_sums + kPerThreadBlock - 1) / kPerThreadBlock;
  sum_blocks_of_turn<<<unsigned(grid), kThreads, 0, stream>>>(work, turn, sums);
  return launched("sum_blocks_of_turn");
}

Status chain_blocks(const DigestWork& work, uint64_t turn, const uint64_t* sums, Stream stream) {
  if (work.num_arrays == 0) return {};
  chain_blocks_of_turn<<<work.num_arrays, kWarp, 0, stream>>>(work, turn, sums);
  return launched("chain_blocks_of_turn");
}

Status copy_tails(const DigestWork& work, Stream stream) {
  if (work.num_arrays == 0) return {};
  copy_tail_of_each<<<work.num_arrays, 128, 0, stream>>>(work);
  return launched("copy_tail_of_each");
}

}  // namespace deltawire::cuda
