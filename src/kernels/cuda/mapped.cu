#include "kernels/cuda/mapped.h"

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <vector>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256, kPerThread = 8;
constexpr unsigned kChunk = kThreads * kPerThread;  // changes that a thread block looks at

// Of a batch, on the device.
struct Work {
  const MappedList* lists;
  const MappedPiece* pieces;
  const uint64_t* first_chunk;  // of each list, ascending
  const uint32_t* owners;       // whose a chunk is
  uint64_t* starts;             // the element that a chunk's first gap is counted from
  const PatchStatus* status;
};

__device__ uint64_t load_entry(const ListPatch& list, uint64_t i) {
  if (list.entry_bytes == 2) return load_element<uint16_t>(list.positions, i);
  if (list.entry_bytes == 4) return load_element<uint32_t>(list.positions, i);
  return load_element<uint64_t>(list.positions, i);
}

struct ChunkAt {
  const MappedList& of;
  uint64_t begin, end;
  __device__ explicit ChunkAt(const Work& work) : of(work.lists[work.owners[blockIdx.x]]) {
    begin = (blockIdx.x - work.first_chunk[work.owners[blockIdx.x]]) * kChunk;
    end = min(begin + kChunk, of.list.count);
  }
};

// How many elements the gaps and changes of each chunk cover.
__global__ void __launch_bounds__(kThreads) cover_chunks(Work work) {
  using Reduce = cub::BlockReduce<uint64_t, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const ChunkAt chunk(work);
  if (chunk.of.list.absolute != 0) return;
  uint64_t covered = 0;
  for (uint64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += kThreads) {
    covered += load_entry(chunk.of.list, i) + 1;
  }
  covered = Reduce(storage).Sum(covered);
  if (threadIdx.x == 0) work.starts[blockIdx.x] = covered;
}

// One thread block goes through the chunks of a list.
__global__ void __launch_bounds__(kThreads) start_chunks(Work work) {
  using Scan = cub::BlockScan<uint64_t, kThreads>;
  __shared__ typename Scan::TempStorage storage;
  const ListPatch& list = work.lists[blockIdx.x].list;
  if (list.absolute != 0) return;
  uint64_t* const starts = work.starts + work.first_chunk[blockIdx.x];
  const uint64_t count = (list.count + kChunk - 1) / kChunk;
  uint64_t so_far = 0;
  for (uint64_t base = 0; base < count; base += kThreads) {
    const uint64_t chunk = base + threadIdx.x;
    uint64_t before, total;
    Scan(storage).ExclusiveSum(chunk < count ? starts[chunk] : 0, before, total);
    __syncthreads();
    if (chunk < count) starts[chunk] = so_far + before;
    so_far += total;
  }
}

__device__ uint64_t divided(uint64_t a, uint64_t b) {
  if (((a | b) >> 32) == 0) return uint32_t(a) / uint32_t(b);  // three times as fast
  return a / b;
}

// To where the element lies, if it is in one of the pieces.
template <class T>
__device__ void store_mapped(const MappedList& list, const MappedPiece* pieces, uint64_t position,
                             T value) {
  uint64_t at[kMaxMappedDims];
#pragma unroll
  for (unsigned d = kMaxMappedDims - 1; d > 0; --d) {
    at[d] = 0;
    if (d >= list.num_dims) continue;
    const uint64_t rows = divided(position, list.shape[d]);
    at[d] = position - rows * list.shape[d];
    position = rows;
  }
  at[0] = position;
  for (uint32_t p = 0; p < list.num_pieces; ++p) {
    const MappedPiece& piece = pieces[list.first_piece + p];
    bool inside = true;
    int64_t element = 0;
#pragma unroll
    for (unsigned d = 0; d < kMaxMappedDims; ++d) {
      if (d >= list.num_dims) continue;
      const uint64_t own = at[d] - piece.offset[d];  // a large number where it is before
      inside = inside && own < piece.extent[d];
      element += int64_t(own) * piece.strides[d];
    }
    if (inside) return store_element<T>(piece.data, uint64_t(element), value);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) scatter_mapped_chunks(Work work) {
  using Scan = cub::BlockScan<uint64_t, kThreads>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ uint64_t positions[kChunk];
  if (work.status->code != 0) return;
  const ChunkAt chunk(work);
  const ListPatch& list = chunk.of.list;
  const uint32_t count = uint32_t(chunk.end - chunk.begin);
  if (list.absolute == 0) {
    const uint32_t first = threadIdx.x * kPerThread;
    uint64_t gaps[kPerThread], sum = 0, at;
#pragma unroll
    for (unsigned j = 0; j < kPerThread; ++j) {
      gaps[j] = first + j < count ? load_entry(list, chunk.begin + first + j) : 0;
      sum += gaps[j] + 1;
    }
    Scan(storage).ExclusiveSum(sum, at);
    at += work.starts[blockIdx.x];
#pragma unroll
    for (unsigned j = 0; j < kPerThread; ++j) {
      at += gaps[j];
      positions[first + j] = at++;
    }
    __syncthreads();
  }
  // Neighbours are written by neighbouring lanes.
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    const uint64_t position = list.absolute != 0 ? load_entry(list, chunk.begin + i) : positions[i];
    store_mapped<T>(chunk.of, work.pieces, position, load_element<T>(list.values, chunk.begin + i));
  }
}

template <class T>
Status launch(const Work& work, uint64_t chunks, Stream stream) {
  scatter_mapped_chunks<T><<<unsigned(chunks), kThreads, 0, stream>>>(work);
  return launched("scatter_mapped_chunks");
}

uint64_t num_chunks(const MappedList& list) { return (list.list.count + kChunk - 1) / kChunk; }

size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

size_t mapped_scratch(std::span<const MappedList> lists, size_t num_pieces) noexcept {
  uint64_t chunks = 0;
  for (const MappedList& list : lists) chunks += num_chunks(list);
  return rounded(lists.size_bytes()) + rounded(num_pieces * sizeof(MappedPiece)) +
         rounded(lists.size() * sizeof(uint64_t)) + rounded(chunks * sizeof(uint32_t)) +
         rounded(chunks * sizeof(uint64_t));
}

Status scatter_mapped(std::span<const MappedList> lists, std::span<const MappedPiece> pieces,
                      unsigned width, void* scratch, const PatchStatus* status, Stream stream) {
  std::vector<uint64_t> first_chunk;
  std::vector<uint32_t> owners;
  for (size_t i = 0; i < lists.size(); ++i) {
    first_chunk.push_back(owners.size());
    owners.insert(owners.end(), num_chunks(lists[i]), uint32_t(i));
  }
  if (owners.empty()) return {};
  if (owners.size() >= uint64_t{1} << 31) {
    return unsupported("over 2^31 chunks of changes in one batch");
  }
  uint8_t* at = static_cast<uint8_t*>(scratch);
  const auto put = [&](const auto* from, size_t count) {
    uint8_t* const to = at;
    at += rounded(count * sizeof *from);
    return std::pair(copy(to, from, count * sizeof *from, stream), to);
  };
  const auto [lists_copied, lists_at] = put(lists.data(), lists.size());
  const auto [pieces_copied, pieces_at] = put(pieces.data(), pieces.size());
  const auto [chunks_copied, chunks_at] = put(first_chunk.data(), first_chunk.size());
  const auto [owners_copied, owners_at] = put(owners.data(), owners.size());
  for (const Status& copied : {lists_copied, pieces_copied, chunks_copied, owners_copied}) {
    DW_RETURN_IF_ERROR(copied);
  }
  const Work work{reinterpret_cast<const MappedList*>(lists_at),
                  reinterpret_cast<const MappedPiece*>(pieces_at),
                  reinterpret_cast<const uint64_t*>(chunks_at),
                  reinterpret_cast<const uint32_t*>(owners_at),
                  reinterpret_cast<uint64_t*>(at),
                  status};
  cover_chunks<<<unsigned(owners.size()), kThreads, 0, stream>>>(work);
  DW_RETURN_IF_ERROR(launched("cover_chunks"));
  start_chunks<<<unsigned(lists.size()), kThreads, 0, stream>>>(work);
  DW_RETURN_IF_ERROR(launched("start_chunks"));
  return with_width(width, [&]<class T>() { return launch<T>(work, owners.size(), stream); });
}

}  // namespace deltawire::cuda
