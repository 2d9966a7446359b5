#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/lists.h"
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kPerThread = 8;                  // neighbours
constexpr unsigned kChunk = kThreads * kPerThread;  // changes that a thread block looks at

uint64_t num_chunks(const ListPatch& patch) { return (patch.count + kChunk - 1) / kChunk; }

uint64_t num_chunks(std::span<const ListPatch> patches) {
  uint64_t chunks = 0;
  for (const ListPatch& patch : patches) chunks += num_chunks(patch);
  return chunks;
}

// On the device: the patches, whose a chunk is, and the element that each chunk starts at.
struct Work {
  const ListPatch* patches;
  const uint32_t* owners;
  uint64_t* starts;
  PatchStatus* status;
};

__global__ void name_owners(const ListPatch* patches, uint32_t* owners) {
  const ListPatch& patch = patches[blockIdx.x];
  const uint64_t end = patch.first_chunk + (patch.count + kChunk - 1) / kChunk;
  for (uint64_t chunk = patch.first_chunk + threadIdx.x; chunk < end; chunk += kThreads) {
    owners[chunk] = blockIdx.x;
  }
}

// Gap i, no more than one past the array: that is wrong enough, and sums cannot overflow.
__device__ uint64_t load_gap(const ListPatch& patch, uint64_t i) {
  const uint64_t gap = patch.gap_bytes == 2   ? load_element<uint16_t>(patch.gaps, i)
                       : patch.gap_bytes == 4 ? load_element<uint32_t>(patch.gaps, i)
                                              : load_element<uint64_t>(patch.gaps, i);
  return gap < patch.num_elements ? gap : patch.num_elements;
}

struct ChunkAt {
  ListPatch patch;
  uint32_t array;
  uint64_t begin, end;
  __device__ explicit ChunkAt(const Work& work) : array(work.owners[blockIdx.x]) {
    patch = work.patches[array];
    begin = (blockIdx.x - patch.first_chunk) * kChunk;
    end = begin + kChunk < patch.count ? begin + kChunk : patch.count;
  }
};

// How many elements the gaps and changes of a chunk cover.
__global__ void __launch_bounds__(kThreads) check_chunks(Work work) {
  using Reduce = cub::BlockReduce<uint64_t, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const ChunkAt chunk(work);
  const ListPatch& patch = chunk.patch;
  uint64_t covered = 0;
  for (uint64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += kThreads) {
    covered += load_gap(patch, i) + 1;
  }
  covered = Reduce(storage).Sum(covered);
  if (threadIdx.x == 0) work.starts[blockIdx.x] = covered;
}

// One thread block goes through the chunks of an array.
__global__ void __launch_bounds__(kThreads) place_chunks(Work work) {
  using Scan = cub::BlockScan<uint64_t, kThreads>;
  __shared__ typename Scan::TempStorage storage;
  const ListPatch patch = work.patches[blockIdx.x];
  const uint64_t end = patch.first_chunk + (patch.count + kChunk - 1) / kChunk;
  uint64_t so_far = 0;
  for (uint64_t base = patch.first_chunk; base < end; base += kThreads) {
    const uint64_t chunk = base + threadIdx.x;
    const uint64_t own = chunk < end ? work.starts[chunk] : 0;
    uint64_t before, total;
    Scan(storage).ExclusiveSum(own, before, total);
    __syncthreads();
    if (chunk < end) {
      work.starts[chunk] = so_far + before;
      if (so_far + before + own > patch.num_elements) {
        fail(work.status, PatchError::kPositionOutside, blockIdx.x,
             (chunk - patch.first_chunk) * kChunk);
      }
    }
    so_far += total;
  }
}

// A thread's neighbours at once, where they lie so that they can be loaded so.
template <class T>
__device__ void load_neighbours(const uint8_t* list, uint64_t first, uint32_t count, T* out) {
  const uint8_t* const at = list + first * sizeof(T);
  constexpr unsigned kVectors = sizeof(T) * kPerThread / 16, kPer = 16 / sizeof(T);
  if constexpr (kVectors > 0) {
    if (count == kPerThread && is_aligned16(at)) {
#pragma unroll
      for (unsigned v = 0; v < kVectors; ++v) {
        const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(at) + v);
#pragma unroll
        for (unsigned j = 0; j < kPer; ++j) out[v * kPer + j] = element_of<T>(bits, j);
      }
      return;
    }
  }
#pragma unroll
  for (unsigned j = 0; j < kPerThread; ++j) {
    out[j] = j < count ? load_element<T>(list, first + j) : T{0};
  }
}

// The positions of a chunk's changes, relative to where the chunk starts.
template <class Gap>
__device__ void place_changes_of(const ListPatch& patch, uint64_t chunk_begin, uint32_t count,
                                 uint64_t* positions) {
  using Scan = cub::BlockScan<uint64_t, kThreads>;
  __shared__ typename Scan::TempStorage storage;
  const uint32_t first = threadIdx.x * kPerThread;
  const uint32_t own = first >= count ? 0 : min(kPerThread, count - first);
  Gap gaps[kPerThread];
  load_neighbours<Gap>(patch.gaps, chunk_begin + first, own, gaps);
  uint64_t sum = 0;
#pragma unroll
  for (unsigned j = 0; j < kPerThread; ++j) sum += uint64_t{gaps[j]} + 1;
  uint64_t at;
  Scan(storage).ExclusiveSum(sum, at);
#pragma unroll
  for (unsigned j = 0; j < kPerThread; ++j) {
    at += gaps[j];
    positions[first + j] = at++;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) scatter_chunks(Work work) {
  __shared__ uint64_t positions[kChunk];
  if (work.status->code != 0) return;
  const ChunkAt chunk(work);
  const ListPatch& patch = chunk.patch;
  const uint32_t count = uint32_t(chunk.end - chunk.begin);
  const uint64_t start = work.starts[blockIdx.x];
  if (patch.gap_bytes == 2) {
    place_changes_of<uint16_t>(patch, chunk.begin, count, positions);
  } else if (patch.gap_bytes == 4) {
    place_changes_of<uint32_t>(patch, chunk.begin, count, positions);
  } else {
    place_changes_of<uint64_t>(patch, chunk.begin, count, positions);
  }
  __syncthreads();
  // Neighbours are written by neighbouring lanes: memory likes that best.
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    store_element<T>(patch.data, start + positions[i],
                     load_element<T>(patch.values, chunk.begin + i));
  }
}

template <class T>
Status scatter(const Work& work, uint64_t chunks, Stream stream) {
  scatter_chunks<T><<<unsigned(chunks), kThreads, 0, stream>>>(work);
  return launched("scatter_chunks");
}

size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

Work work_in(void* scratch, size_t num_patches, uint64_t chunks, PatchStatus* status) {
  uint8_t* const at = static_cast<uint8_t*>(scratch);
  uint8_t* const owners = at + rounded(num_patches * sizeof(ListPatch));
  uint8_t* const starts = owners + rounded(chunks * sizeof(uint32_t));
  return {reinterpret_cast<const ListPatch*>(at), reinterpret_cast<const uint32_t*>(owners),
          reinterpret_cast<uint64_t*>(starts), status};
}

}  // namespace

const char* describe(PatchError error) noexcept {
  switch (error) {
    case PatchError::kNone:
      return "nothing wrong";
    case PatchError::kPositionOutside:
      return "a position lies outside the array";
    case PatchError::kBadState:
      return "tight block: a coder state is below its range";
    case PatchError::kGapsRunOver:
      return "tight block: gaps exceed the block";
    case PatchError::kRankNotReached:
      return "tight block: a rank exceeds the elements of its class";
    case PatchError::kValuesRunOver:
      return "tight block: values exceed the block or are not in canonical form";
    case PatchError::kStreamsDoNotMeet:
      return "tight block: the two streams do not meet";
    case PatchError::kKeysDoNotFit:
      return "exponents: planes and the keys they lack: keys that do not fit";
    case PatchError::kWeightsChanged:
      return "weights changed while they were encoded";
  }
  return "unknown";
}

size_t apply_lists_scratch(std::span<const ListPatch> patches) noexcept {
  const uint64_t chunks = num_chunks(patches);
  return rounded(patches.size() * sizeof(ListPatch)) + rounded(chunks * sizeof(uint32_t)) +
         rounded(chunks * sizeof(uint64_t));
}

Status check_lists(std::span<ListPatch> patches, void* scratch, PatchStatus* status,
                   Stream stream) {
  const uint64_t chunks = num_chunks(patches);
  if (chunks == 0) return {};
  if (chunks >= uint64_t{1} << 31) return unsupported("over 2^31 chunks of changes in one batch");
  uint64_t first_chunk = 0;
  for (ListPatch& patch : patches) {
    patch.first_chunk = first_chunk;
    first_chunk += num_chunks(patch);
  }
  const Work work = work_in(scratch, patches.size(), chunks, status);
  DW_RETURN_IF_ERROR(copy(const_cast<ListPatch*>(work.patches), patches.data(),
                          patches.size() * sizeof(ListPatch), stream));
  name_owners<<<unsigned(patches.size()), kThreads, 0, stream>>>(
      work.patches, const_cast<uint32_t*>(work.owners));
  DW_RETURN_IF_ERROR(launched("name_owners"));
  check_chunks<<<unsigned(chunks), kThreads, 0, stream>>>(work);
  DW_RETURN_IF_ERROR(launched("check_chunks"));
  place_chunks<<<unsigned(patches.size()), kThreads, 0, stream>>>(work);
  return launched("place_chunks");
}

Status scatter_lists(std::span<const ListPatch> patches, unsigned width, void* scratch,
                     PatchStatus* status, Stream stream) {
  const uint64_t chunks = num_chunks(patches);
  if (chunks == 0) return {};
  const Work work = work_in(scratch, patches.size(), chunks, status);
  return with_width(width, [&]<class T>() { return scatter<T>(work, chunks, stream); });
}

}  // namespace deltawire::cuda
