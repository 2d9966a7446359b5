// A thread block takes a block of weights into registers: amax, scale, elements and the comparison
// all come from there. Blocks of other sizes than 128 x 128, and those at a matrix' end, are read
// twice, element by element.
#include "kernels/cuda/fp8_block.h"

#include <cuda_fp8.h>

#include <vector>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/elements.cuh"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp;
constexpr unsigned kSide = 128;                       // of blocks that registers hold
constexpr unsigned kPer = 8, kAcross = kSide / kPer;  // elements of a thread; threads of a row
constexpr unsigned kDown = kThreads / kAcross;        // rows at once
constexpr unsigned kRounds = kSide / kDown;

struct Work {
  Fp8Job job;
  uint64_t first_block, rows_of_blocks, columns_of_blocks;
  bool in_registers;  // rows begin where sixteen bytes can be loaded
};

__device__ uint32_t rounded_bits(WideFloat from, uint32_t bits) {
  return from == WideFloat::kF32AsBf16 ? bf16_of_f32(bits) << 16 : bits;
}

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

__device__ uint32_t two_elements(float low, float high, float inverse) {
  const float2 both = {__fmul_rn(low, inverse), __fmul_rn(high, inverse)};
  return __nv_cvt_float2_to_fp8x2(both, __NV_SATFINITE, __NV_E4M3);
}

// Eight weights of a thread.
template <WideFloat kFrom>
struct Eight {
  uint4 words[2];
  __device__ void load(const void* data, uint64_t i) {
    const auto* const at = reinterpret_cast<const uint4*>(static_cast<const float*>(data) + i);
    words[0] = __ldcs(at);
    words[1] = __ldcs(at + 1);
  }
  __device__ uint32_t largest() const {
    uint32_t all = 0;
#pragma unroll
    for (unsigned j = 0; j < kPer; ++j) all = max(all, (&words[0].x)[j] & 0x7fffffffU);
    return all;  // rounding keeps the order: it is done once, at the end
  }
  __device__ uint2 quantised(float inverse) const {
    uint32_t pairs[4];
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      pairs[j] =
          two_elements(__uint_as_float(rounded_bits(kFrom, (&words[0].x)[2 * j])),
                       __uint_as_float(rounded_bits(kFrom, (&words[0].x)[2 * j + 1])), inverse);
    }
    return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
  }
};

template <>
struct Eight<WideFloat::kBf16> {
  uint4 words;
  __device__ void load(const void* data, uint64_t i) {
    words = __ldcs(reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + i));
  }
  __device__ uint32_t largest() const {  // of both halves
    const uint32_t mask = 0x7fff7fffU;
    const uint32_t both = __vmaxu2(__vmaxu2(words.x & mask, words.y & mask),
                                   __vmaxu2(words.z & mask, words.w & mask));
    return max(both & 0xffffU, both >> 16) << 16;
  }
  __device__ uint2 quantised(float inverse) const {
    const auto pair = [&](uint32_t word) {
      return two_elements(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000U),
                          inverse);
    };
    return {pair(words.x) | pair(words.y) << 16, pair(words.z) | pair(words.w) << 16};
  }
};

// Bit j: byte j differs.
__device__ uint32_t changed_bytes(uint2 a, uint2 b) {
  // 0xff for each byte that differs; the multiplication brings their low bits together.
  const uint32_t low = __vcmpne4(a.x, b.x) & 0x08040201U, high = __vcmpne4(a.y, b.y) & 0x08040201U;
  return (low * 0x01010101U) >> 24 | (high * 0x01010101U) >> 24 << 4;
}

template <WideFloat kFrom>
__device__ void quantise_in_registers(const Work& work, uint64_t block, Fp8Found* found) {
  const Fp8Job job = work.job;  // kept: what is written might be it
  const uint64_t row = block / work.columns_of_blocks * kSide + threadIdx.x / kAcross;
  const uint64_t column = block % work.columns_of_blocks * kSide + threadIdx.x % kAcross * kPer;
  const uint64_t first = row * job.matrix.columns + column, step = kDown * job.matrix.columns;
  Eight<kFrom> weights[kRounds];
  uint2 before[kRounds];
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) weights[k].load(job.matrix.weights, first + k * step);
  if (job.before != nullptr) {
#pragma unroll
    for (unsigned k = 0; k < kRounds; ++k) {
      before[k] = __ldcs(reinterpret_cast<const uint2*>(job.before + first + k * step));
    }
  }
  uint32_t own = 0;
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) own = max(own, weights[k].largest());
  const float inverse = settle(work, block, rounded_bits(kFrom, block_max(own)), found);
  uint32_t count = 0;
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) {
    const uint2 now = weights[k].quantised(inverse);
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
}

template <WideFloat kFrom>
__device__ uint32_t load_bits(const void* data, uint64_t i) {
  if constexpr (kFrom == WideFloat::kBf16) return uint32_t(load_element<uint16_t>(data, i)) << 16;
  return rounded_bits(kFrom, load_element<uint32_t>(data, i));
}

// A warp takes a row, 32 columns at a time: those of one word of the mask.
template <WideFloat kFrom>
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
      own = max(own, load_bits<kFrom>(matrix.weights, i) & 0x7fffffffU);
    }
  }
  const float inverse = settle(work, block, block_max(own), found);
  uint32_t count = 0;
  for (uint64_t row = top + threadIdx.x / kWarp; row < bottom; row += kWarps) {
    for (uint64_t word = left / 32; word * 32 < right; ++word) {
      const uint64_t column = word * 32 + lane_id(), i = row * matrix.columns + column;
      bool differs = false;
      if (column >= left && column < right) {
        const float weight = __uint_as_float(load_bits<kFrom>(matrix.weights, i));
        const auto now = uint8_t(two_elements(weight, 0, inverse));
        differs = job.before != nullptr && job.before[i] != now;
        if (job.elements != nullptr) job.elements[i] = now;
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
}

template <WideFloat kFrom>
__global__ void __launch_bounds__(kThreads, kFrom == WideFloat::kBf16 ? 4 : 2)
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
    quantise_in_registers<kFrom>(work, block, found + low);
  } else {
    quantise_any<kFrom>(work, block, found + low);
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
Status launch(const Work* works, uint32_t num_works, uint64_t blocks, Fp8Found* found,
              Stream stream) {
  quantise_blocks<kFrom><<<unsigned(blocks), kThreads, 0, stream>>>(works, num_works, found);
  return launched("quantise_blocks");
}

}  // namespace

size_t fp8_job_bytes(std::span<const Fp8Job> jobs) noexcept { return jobs.size() * sizeof(Work); }

Status fp8_blocks(std::span<const Fp8Job> jobs, void* room, Fp8Found* found, Stream stream) {
  std::vector<Work> works;
  uint64_t blocks = 0;
  for (const Fp8Job& job : jobs) {
    const fp8::Matrix& matrix = job.matrix;
    if (matrix.from != jobs[0].matrix.from) return invalid_argument("weights of several dtypes");
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
      return launch<WideFloat::kBf16>(there, count, blocks, found, stream);
    case WideFloat::kF32:
      return launch<WideFloat::kF32>(there, count, blocks, found, stream);
    default:
      return launch<WideFloat::kF32AsBf16>(there, count, blocks, found, stream);
  }
}

}  // namespace deltawire::cuda
