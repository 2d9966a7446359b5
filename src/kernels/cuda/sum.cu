#include "kernels/cuda/sum.h"

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/hashed_bytes.cuh"
#include "kernels/sum_math.h"

namespace deltawire::cuda {
namespace {

using sum128::kSegmentBytes;

constexpr unsigned kWarps = 8, kThreads = kWarps * kWarp;
constexpr unsigned kGroup = 16;  // segments whose keys the threads of a warp make together
constexpr unsigned kGroups = kSumChunkBytes / kSegmentBytes / kGroup / kWarps;  // of a warp
static_assert(kGroups * kGroup * kWarps * kSegmentBytes == kSumChunkBytes);

// Thread t of a warp has words 2 t and 2 t + 1 of every segment, and so the same keys for all.
struct ThreadKeys {
  uint64_t keys[sum128::kLanes][2];
  __device__ ThreadKeys() {
#pragma unroll
    for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) keys[lane][i] = sum128::word_key(lane, 2 * lane_id() + i);
    }
  }
};

struct Lanes {
  uint64_t sums[sum128::kLanes] = {};
};

// Of the tensor, where the array has `segment`.
__device__ uint64_t place_of(const SumPlace& place, uint64_t segment) {
  if (place.row == 0) return place.first + segment;
  return place.first + segment / place.row * place.pitch + segment % place.row;
}

// Segments `segment` to `segment` + 15, or those of them that the array has.
template <NewKind kKind>
__device__ void add_group(const SumArray& array, uint64_t segment, const ThreadKeys& keys,
                          Lanes* lanes) {
  using H = HashedBytes<kKind>;
  // Thread t makes the key of segment t / 2 for lane t % 2.
  const uint64_t made =
      sum128::segment_key(lane_id() % 2, place_of(array.place, segment + lane_id() / 2));
  const uint64_t begin = segment * kSegmentBytes + lane_id() * 16;
  if (is_aligned16(array.data) && (segment + kGroup) * kSegmentBytes <= array.num_bytes) {
    constexpr unsigned kInFlight = 8 / H::Bits::kVectors;
#pragma unroll 1
    for (unsigned k = 0; k < kGroup; k += kInFlight) {
      typename H::Bits bits[kInFlight];
#pragma unroll
      for (unsigned j = 0; j < kInFlight; ++j) {
        bits[j].load(array.data, (begin + (k + j) * kSegmentBytes) / sizeof(typename H::Element));
      }
#pragma unroll
      for (unsigned j = 0; j < kInFlight; ++j) {
        const uint4 words = bits[j].rounded();
        const auto first = element_of<uint64_t>(words, 0), second = element_of<uint64_t>(words, 1);
#pragma unroll
        for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
          const uint64_t key = __shfl_sync(kAllLanes, made, 2 * (k + j) + lane);
          lanes->sums[lane] += key * (sum128::product(first, keys.keys[lane][0]) +
                                      sum128::product(second, keys.keys[lane][1]));
        }
      }
    }
    return;
  }
#pragma unroll 1
  for (unsigned k = 0; k < kGroup; ++k) {
    const uint64_t key[2] = {__shfl_sync(kAllLanes, made, 2 * k),
                             __shfl_sync(kAllLanes, made, 2 * k + 1)};
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const uint64_t byte = begin + k * kSegmentBytes + 8 * i;
      if (byte >= array.num_bytes) continue;
      const uint64_t word =
          H::load_word(array.data, byte, unsigned(min(uint64_t{8}, array.num_bytes - byte)));
#pragma unroll
      for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
        lanes->sums[lane] += key[lane] * sum128::product(word, keys.keys[lane][i]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    add_sums_of_chunks(const SumArray* arrays, uint32_t num_arrays, uint64_t* sums) {
  const uint32_t owner = owner_of(arrays, num_arrays, &SumArray::first_chunk, blockIdx.x);
  const SumArray array = arrays[owner];
  const ThreadKeys keys;
  Lanes lanes;
  const uint64_t chunk = blockIdx.x - array.first_chunk;
  const uint64_t first =
      (chunk * kWarps + threadIdx.x / kWarp) * kGroups * kGroup;  // segment of this warp
#pragma unroll 1
  for (unsigned group = 0; group < kGroups; ++group) {
    const uint64_t segment = first + group * kGroup;
    if (segment * kSegmentBytes >= array.num_bytes) break;
    if (array.kind == NewKind::kSame) {
      add_group<NewKind::kSame>(array, segment, keys, &lanes);
    } else if (array.kind == NewKind::kF32AsBf16) {
      add_group<NewKind::kF32AsBf16>(array, segment, keys, &lanes);
    } else {
      add_group<NewKind::kF16AsBf16>(array, segment, keys, &lanes);
    }
  }
  __shared__ unsigned long long total[sum128::kLanes];
  if (threadIdx.x < sum128::kLanes) total[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll
  for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
    uint64_t sum = lanes.sums[lane];
#pragma unroll
    for (unsigned step = 1; step < kWarp; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    if (lane_id() == 0) atomicAdd(&total[lane], sum);
  }
  __syncthreads();
  if (threadIdx.x < sum128::kLanes) {
    atomicAdd(reinterpret_cast<unsigned long long*>(sums) + 2 * owner + threadIdx.x,
              total[threadIdx.x]);
  }
}

}  // namespace

Status add_sums(const SumArray* arrays, uint32_t num_arrays, uint64_t num_chunks, uint64_t* sums,
                Stream stream) {
  if (num_chunks == 0) return {};
  add_sums_of_chunks<<<unsigned(num_chunks), kThreads, 0, stream>>>(arrays, num_arrays, sums);
  return launched("add_sums_of_chunks");
}

}  // namespace deltawire::cuda
