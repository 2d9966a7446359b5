// A thread block takes a block of weights into registers: amax, scale, elements and the comparison
// all come from there. Blocks of other sizes than 128 x 128, and those at a matrix' end, are read
// twice, element by element.
#include "kernels/cuda/fp8_block.h"

#include <vector>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/eights.cuh"
#include "kernels/cuda/sum_key_table.cuh"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp;
constexpr unsigned kSide = 128;                            // of blocks that registers hold
constexpr unsigned kPer = kEight, kAcross = kSide / kPer;  // elements of a thread; threads of a row
constexpr unsigned kDown = kThreads / kAcross;             // rows at once
constexpr unsigned kRounds = kSide / kDown;

struct Work {
  Fp8Job job;
  uint64_t first_block, rows_of_blocks, columns_of_blocks;
  bool in_registers;  // rows begin where sixteen bytes can be loaded
};

__device__ uint32_t block_max(uint32_t own) {
  __shared__ uint32_t of_warp[kWarps];
  own = __reduce_max_sync(kAllLanes, own);
  if (lane_id() == 0) of_warp[threadIdx.x / kWarp] = own;
  __syncthreads();
  uint32_t all = of_warp[0];
#pragma unroll
  for (unsigned w = 1; w < kWarps; ++w) all = max(all, of_warp[w]);
  return all;
}

// The block's scale, written by one thread; gives its inverse.
__device__ float settle(const Work& work, uint64_t block, uint32_t amax, Fp8Found* found) {
  const float largest = fmaxf(__uint_as_float(amax), fp8::kLeastAmax);
  float scale = __fdiv_rn(largest, fp8::kLargest);
  if (work.job.matrix.power_of_two) scale = fp8::to_power_of_two(scale);
  if (threadIdx.x == 0) {
    work.job.scales[block] = scale;
    if (amax >= fp8::kInfinity) atomicAdd(&found->unbounded, 1ULL);
  }
  return __frcp_rn(scale);
}

// One addition for a thread block: those to one number wait for each other.
__device__ void add_changed(uint32_t own, Fp8Found* found) {
  __shared__ uint32_t of_warp[kWarps];
  own = __reduce_add_sync(kAllLanes, own);
  if (lane_id() == 0) of_warp[threadIdx.x / kWarp] = own;
  __syncthreads();
  if (threadIdx.x >= kWarps) return;
  const uint32_t all = __reduce_add_sync((1U << kWarps) - 1, of_warp[threadIdx.x]);
  if (threadIdx.x == 0 && all != 0) {
    atomicAdd(&found->changed, static_cast<unsigned long long>(all));
  }
}

// What a thread has seen of the new elements. Words must not lie in two blocks.
template <bool kSums>
struct ElementSums {
  SumLanes lanes;
  // Eight bytes, from `byte` of the array on.
  __device__ void add(uint64_t byte, uint64_t word) {
    if constexpr (kSums) {
#pragma unroll
      for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
        const uint64_t key = kWordKeys.keys[lane][byte / 8 % sum128::kSegmentWords];
        lanes.sums[lane] +=
            sum128::segment_key(lane, byte / sum128::kSegmentBytes) * sum128::product(word, key);
      }
    }
  }
  // All threads of the block.
  __device__ void finish(Fp8Found* found) {
    if constexpr (kSums) {
      __shared__ uint64_t total[sum128::kLanes];
      if (threadIdx.x < sum128::kLanes) total[threadIdx.x] = 0;
      __syncthreads();
      lanes.add_warp_to(total);
      __syncthreads();
      if (threadIdx.x < sum128::kLanes) atomicAdd(&found->sums[threadIdx.x], total[threadIdx.x]);
    }
  }
};

// A thread's part of a block of weights, `step` elements from one eight to the next.
template <WideFloat kFrom>
struct Held {
  std::conditional_t<kFrom == WideFloat::kF32, WideEight, NarrowEight> eights[kRounds];

  __device__ void load(const void* data, uint64_t first, uint64_t step) {
    if constexpr (kFrom != WideFloat::kF32AsBf16) {
#pragma unroll
      for (unsigned k = 0; k < kRounds; ++k) eights[k].load(data, first + k * step);
    } else {
      constexpr unsigned kInFlight = 4;  // wide ones, which take twice the registers
#pragma unroll
      for (unsigned begin = 0; begin < kRounds; begin += kInFlight) {
        WideEight wide[kInFlight];
#pragma unroll
        for (unsigned k = 0; k < kInFlight; ++k) wide[k].load(data, first + (begin + k) * step);
#pragma unroll
        for (unsigned k = 0; k < kInFlight; ++k) {
          eights[begin + k] = NarrowEight::rounded(wide[k]);
        }
      }
    }
  }
  __device__ uint32_t largest() const {
    uint32_t all = 0;
#pragma unroll
    for (unsigned k = 0; k < kRounds; ++k) all = max(all, eights[k].largest());
    return all;
  }
};

// Bit j: byte j differs.
__device__ uint32_t changed_bytes(uint2 a, uint2 b) {
  // 0xff for each byte that differs; the multiplication brings their low bits together.
  const uint32_t low = __vcmpne4(a.x, b.x) & 0x08040201U, high = __vcmpne4(a.y, b.y) & 0x08040201U;
  return (low * 0x01010101U) >> 24 | (high * 0x01010101U) >> 24 << 4;
}

template <WideFloat kFrom, bool kSums>
__device__ void quantise_in_registers(const Work& work, uint64_t block, Fp8Found* found) {
  const Fp8Job job = work.job;  // kept: what is written might be it
  const uint64_t row = block / work.columns_of_blocks * kSide + threadIdx.x / kAcross;
  const uint64_t column = block % work.columns_of_blocks * kSide + threadIdx.x % kAcross * kPer;
  const uint64_t first = row * job.matrix.columns + column, step = kDown * job.matrix.columns;
  Held<kFrom> weights;
  uint2 before[kRounds];
  weights.load(job.matrix.weights, first, step);
  if (job.before != nullptr) {
#pragma unroll
    for (unsigned k = 0; k < kRounds; ++k) {
      before[k] = __ldcs(reinterpret_cast<const uint2*>(job.before + first + k * step));
    }
  }
  const float inverse = settle(work, block, block_max(weights.largest()), found);
  uint32_t count = 0;
  ElementSums<kSums> sums;
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) {
    const uint2 now = weights.eights[k].quantised(inverse);
    sums.add(first + k * step, uint64_t{now.y} << 32 | now.x);
    if (job.before != nullptr) {
      uint32_t mask = changed_bytes(now, before[k]);
      count += __popc(mask);
      mask <<= 8 * (lane_id() % 4);  // four threads have a word
      mask |= __shfl_xor_sync(kAllLanes, mask, 1);
      mask |= __shfl_xor_sync(kAllLanes, mask, 2);
      if (lane_id() % 4 == 0) {
        job.changed[(row + k * kDown) * job.mask_words() + column / 32] = mask;
      }
    }
    if (job.elements != nullptr) {
      *reinterpret_cast<uint2*>(job.elements + first + k * step) = now;
    }
  }
  if (job.before != nullptr) add_changed(count, found);
  sums.finish(found);
}

// What eight neighbours have, the first in the lowest byte.
__device__ uint64_t join_eight(uint8_t own) {
  uint64_t word = uint64_t{own} << (8 * (lane_id() % 8));
#pragma unroll
  for (unsigned step = 1; step < 8; step *= 2) word |= __shfl_xor_sync(kAllLanes, word, step);
  return word;
}

// A warp takes a row, 32 columns at a time: those of one word of the mask.
template <WideFloat kFrom, bool kSums>
__device__ void quantise_any(const Work& work, uint64_t block, Fp8Found* found) {
  const Fp8Job job = work.job;  // kept: what is written might be it
  const fp8::Matrix& matrix = job.matrix;
  const uint64_t top = block / work.columns_of_blocks * matrix.block_rows;
  const uint64_t left = block % work.columns_of_blocks * matrix.block_columns;
  const uint64_t bottom = min(matrix.rows, top + matrix.block_rows);
  const uint64_t right = min(matrix.columns, left + matrix.block_columns);
  const bool shared_words = matrix.block_columns % 32 != 0;  // with the blocks beside it
  uint32_t own = 0;
  for (uint64_t row = top + threadIdx.x / kWarp; row < bottom; row += kWarps) {
    for (uint64_t column = left + lane_id(); column < right; column += kWarp) {
      const uint64_t i = row * matrix.columns + column;
      own = max(own, load_bits(kFrom, matrix.weights, i) & 0x7fffffffU);
    }
  }
  const float inverse = settle(work, block, block_max(own), found);
  uint32_t count = 0;
  ElementSums<kSums> sums;
  for (uint64_t row = top + threadIdx.x / kWarp; row < bottom; row += kWarps) {
    for (uint64_t word = left / 32; word * 32 < right; ++word) {
      const uint64_t column = word * 32 + lane_id(), i = row * matrix.columns + column;
      bool differs = false;
      const bool inside = column >= left && column < right;
      uint8_t now = 0;
      if (inside) {
        const float weight = __uint_as_float(load_bits(kFrom, matrix.weights, i));
        now = uint8_t(two_elements(weight, 0, inverse));
        differs = job.before != nullptr && job.before[i] != now;
        if (job.elements != nullptr) job.elements[i] = now;
      }
      if constexpr (kSums) {
        const uint64_t eight = join_eight(now);
        if (inside && lane_id() % 8 == 0) sums.add(i, eight);
      }
      if (job.before == nullptr) continue;
      const uint32_t mask = __ballot_sync(kAllLanes, differs);
      count += differs;
      if (lane_id() != 0) continue;
      uint32_t* const to = job.changed + row * job.mask_words() + word;
      if (!shared_words) *to = mask;
      if (shared_words && mask != 0) atomicOr(to, mask);
    }
  }
  if (job.before != nullptr) add_changed(count, found);
  sums.finish(found);
}

// Thread blocks that a multiprocessor has registers for.
constexpr unsigned resident(WideFloat from, bool sums) {
  return from == WideFloat::kF32 ? 2 : from == WideFloat::kF32AsBf16 || sums ? 3 : 4;
}

template <WideFloat kFrom, bool kSums>
__global__ void __launch_bounds__(kThreads, resident(kFrom, kSums))
    quantise_blocks(const Work* works, uint32_t num_works, Fp8Found* found) {
  uint32_t low = 0, high = num_works;  // the last whose first block is not after this one
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (works[middle].first_block <= blockIdx.x ? low : high) = middle;
  }
  const Work& work = works[low];
  const uint64_t block = blockIdx.x - work.first_block;
  const fp8::Matrix& matrix = work.job.matrix;
  const bool whole = (block / work.columns_of_blocks + 1) * kSide <= matrix.rows &&
                     (block % work.columns_of_blocks + 1) * kSide <= matrix.columns;
  if (work.in_registers && whole) {
    quantise_in_registers<kFrom, kSums>(work, block, found + low);
  } else {
    quantise_any<kFrom, kSums>(work, block, found + low);
  }
}

bool fits_registers(const Fp8Job& job) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  const fp8::Matrix& matrix = job.matrix;
  return matrix.block_rows == kSide && matrix.block_columns == kSide &&
         matrix.columns % kPer == 0 && aligned(matrix.weights) && aligned(job.before) &&
         aligned(job.elements);
}

template <WideFloat kFrom>
Status launch(const Work* works, uint32_t num_works, uint64_t blocks, bool with_sums,
              Fp8Found* found, Stream stream) {
  const auto kernel = with_sums ? quantise_blocks<kFrom, true> : quantise_blocks<kFrom, false>;
  kernel<<<unsigned(blocks), kThreads, 0, stream>>>(works, num_works, found);
  return launched("quantise_blocks");
}

}  // namespace

size_t fp8_job_bytes(std::span<const Fp8Job> jobs) noexcept { return jobs.size() * sizeof(Work); }

Status fp8_blocks(std::span<const Fp8Job> jobs, void* room, Fp8Found* found, Stream stream,
                  bool with_sums) {
  std::vector<Work> works;
  uint64_t blocks = 0;
  for (const Fp8Job& job : jobs) {
    const fp8::Matrix& matrix = job.matrix;
    if (matrix.from != jobs[0].matrix.from) return invalid_argument("weights of several dtypes");
    if (with_sums && !matrix.has_whole_words()) return invalid_argument("sums of cut words");
    works.push_back(
        {job, blocks, matrix.rows_of_blocks(), matrix.columns_of_blocks(), fits_registers(job)});
    blocks += works.back().rows_of_blocks * works.back().columns_of_blocks;
    if (job.before != nullptr && matrix.block_columns % 32 != 0) {
      DW_RETURN_IF_ERROR(fill_zero(job.changed, matrix.rows * job.mask_words() * 4, stream));
    }
  }
  if (blocks == 0) return {};
  if (blocks > INT32_MAX) return invalid_argument("too many blocks for one call");
  DW_RETURN_IF_ERROR(copy(room, works.data(), fp8_job_bytes(jobs), stream));
  const auto* const there = static_cast<const Work*>(room);
  const auto count = uint32_t(works.size());
  switch (jobs[0].matrix.from) {
    case WideFloat::kBf16:
      return launch<WideFloat::kBf16>(there, count, blocks, with_sums, found, stream);
    case WideFloat::kF32:
      return launch<WideFloat::kF32>(there, count, blocks, with_sums, found, stream);
    default:
      return launch<WideFloat::kF32AsBf16>(there, count, blocks, with_sums, found, stream);
  }
}

}  // namespace deltawire::cuda
