#include "kernels/cuda/sum.h"

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/hashed_bytes.cuh"
#include "kernels/cuda/sum_words.cuh"

namespace deltawire::cuda {
namespace {

using sum128::kSegmentBytes;

constexpr unsigned kWarps = 8, kThreads = kWarps * kWarp;
constexpr unsigned kGroup = SegmentKeys::kCount;  // segments at a time
constexpr unsigned kGroups = kSumChunkBytes / kSegmentBytes / kGroup / kWarps;  // of a warp
static_assert(kGroups * kGroup * kWarps * kSegmentBytes == kSumChunkBytes);

// Of the tensor, where the array has `segment`.
__device__ uint64_t place_of(const SumPlace& place, uint64_t segment) {
  if (place.row == 0) return place.first + segment;
  return place.first + segment / place.row * place.pitch + segment % place.row;
}

// Segments `segment` to `segment` + 15, or those of them that the array has.
template <NewKind kKind, SumPass kPass>
__device__ void add_group(const SumArray& array, uint64_t segment, const ThreadWordKeys& keys,
                          SumLanes* lanes) {
  using H = HashedBytes<kKind>;
  const SegmentKeys segments = SegmentKeys::placed(place_of(array.place, segment + lane_id() / 2));
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
        const uint4 bytes = bits[j].rounded();
        lanes->add(bytes, keys, segments, k + j);
        if constexpr (kPass == SumPass::kCopy) {
          uint8_t* const to = static_cast<uint8_t*>(array.copy_to) + begin;
          __stcs(reinterpret_cast<uint4*>(to + (k + j) * kSegmentBytes), bytes);
        }
      }
    }
    return;
  }
#pragma unroll 1
  for (unsigned k = 0; k < kGroup; ++k) {
    const uint64_t key[2] = {segments.of(k, 0), segments.of(k, 1)};
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const uint64_t byte = begin + k * kSegmentBytes + 8 * i;
      if (byte >= array.num_bytes) continue;
      const unsigned count = unsigned(min(uint64_t{8}, array.num_bytes - byte));
      const uint64_t word = H::load_word(array.data, byte, count);
      if constexpr (kPass == SumPass::kCopy) {
        uint8_t* const to = static_cast<uint8_t*>(array.copy_to) + byte;
        for (unsigned b = 0; b < count; ++b) to[b] = uint8_t(word >> (8 * b));
      }
#pragma unroll
      for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
        lanes->sums[lane] += key[lane] * sum128::product(word, keys.keys[lane][i]);
      }
    }
  }
}

template <SumPass kPass>
__global__ void __launch_bounds__(kThreads)
    add_sums_of_chunks(const SumArray* arrays, uint32_t num_arrays, uint64_t* sums) {
  const uint32_t owner = owner_of(arrays, num_arrays, &SumArray::first_chunk, blockIdx.x);
  const SumArray array = arrays[owner];
  const ThreadWordKeys keys = ThreadWordKeys::make();
  SumLanes lanes;
  const uint64_t chunk = blockIdx.x - array.first_chunk;
  const uint64_t first =
      (chunk * kWarps + threadIdx.x / kWarp) * kGroups * kGroup;  // segment of this warp
#pragma unroll 1
  for (unsigned group = 0; group < kGroups; ++group) {
    const uint64_t segment = first + group * kGroup;
    if (segment * kSegmentBytes >= array.num_bytes) break;
    if (array.kind == NewKind::kSame) {
      add_group<NewKind::kSame, kPass>(array, segment, keys, &lanes);
    } else if (array.kind == NewKind::kF32AsBf16) {
      add_group<NewKind::kF32AsBf16, kPass>(array, segment, keys, &lanes);
    } else {
      add_group<NewKind::kF16AsBf16, kPass>(array, segment, keys, &lanes);
    }
  }
  __shared__ uint64_t total[sum128::kLanes];
  if (threadIdx.x < sum128::kLanes) total[threadIdx.x] = 0;
  __syncthreads();
  lanes.add_warp_to(total);
  __syncthreads();
  if (threadIdx.x < sum128::kLanes) {
    atomicAdd(reinterpret_cast<unsigned long long*>(sums) + 2 * owner + threadIdx.x,
              total[threadIdx.x]);
  }
}

}  // namespace

Status add_sums(const SumArray* arrays, uint32_t num_arrays, uint64_t num_chunks, uint64_t* sums,
                Stream stream, SumPass pass) {
  if (num_chunks == 0) return {};
  const auto kernel = pass == SumPass::kCopy ? add_sums_of_chunks<SumPass::kCopy>
                                             : add_sums_of_chunks<SumPass::kSum>;
  kernel<<<unsigned(num_chunks), kThreads, 0, stream>>>(arrays, num_arrays, sums);
  return launched("add_sums_of_chunks");
}

}  // namespace deltawire::cuda
