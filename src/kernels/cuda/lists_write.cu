#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/lists.h"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp;

// Changes so far and the element after the last of them.
struct Reached {
  uint64_t count, resume;
};
struct Join {
  __device__ Reached operator()(const Reached& a, const Reached& b) const {
    return {a.count + b.count, a.resume > b.resume ? a.resume : b.resume};
  }
};

struct ScanState {
  __device__ explicit ScanState(Reached* s) : sum(s) {}
  __device__ Reached operator()(const Reached& of_block) const {
    const Reached before = *sum;
    *sum = Join()(before, of_block);
    return before;
  }
  Reached* sum;
};

// The first halves: a warp finds the largest gap inside a tile and leaves it in `resume` of the
// tile's place, for the second.
__global__ void __launch_bounds__(kThreads)
    find_inner_gaps(DiffOutput changes, uint64_t num_tiles, TilePlace* places) {
  const uint64_t tile = uint64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (tile >= num_tiles) return;
  const TileChanges own = changes.tiles[tile];
  const uint32_t count = own.first == kNoRoom ? 0 : own.count;
  uint32_t largest = 0;
  for (uint32_t i = lane_id() + 1; i < count; i += kWarp) {
    const uint16_t* at = changes.positions + own.first + i;
    largest = max(largest, uint32_t(at[0]) - at[-1] - 1);
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  if (lane_id() == 0) places[tile].resume = largest;
}

// One thread block goes through the tiles of an array.
__global__ void __launch_bounds__(kThreads)
    place_tiles(const PairArray* arrays, uint32_t num_arrays, uint64_t num_tiles,
                uint32_t tile_size, DiffOutput changes, TilePlace* places, ArrayChanges* out) {
  using Scan = cub::BlockScan<Reached, kThreads>;
  using Reduce = cub::BlockReduce<uint64_t, kThreads>;
  __shared__ typename Scan::TempStorage scan_storage;
  __shared__ typename Reduce::TempStorage reduce_storage;
  const uint32_t array = blockIdx.x;
  const uint64_t begin = arrays[array].first_tile;
  const uint64_t end = array + 1 < num_arrays ? arrays[array + 1].first_tile : num_tiles;
  Reached so_far{0, 0};
  uint64_t largest = 0;
  for (uint64_t base = begin; base < end; base += kThreads) {
    const uint64_t tile = base + threadIdx.x;
    Reached own{0, 0};
    uint64_t first = 0, inner = 0;
    const TileChanges list = tile < end ? changes.tiles[tile] : TileChanges{kNoRoom, 0};
    if (list.count != 0 && list.first != kNoRoom) {
      const uint64_t start = (tile - begin) * tile_size;
      first = start + changes.positions[list.first];
      own = {list.count, start + changes.positions[list.first + list.count - 1] + 1};
      inner = places[tile].resume;
    }
    Reached before;
    ScanState state(&so_far);
    Scan(scan_storage).ExclusiveScan(own, before, Join(), state);
    __syncthreads();
    if (own.count != 0) {
      const uint64_t gap = first - before.resume;
      largest = largest > gap ? largest : gap;
      largest = largest > inner ? largest : inner;
    }
    if (tile < end) places[tile] = {before.count, before.resume};
  }
  const uint64_t total =
      Reduce(reduce_storage).Reduce(largest, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  if (threadIdx.x == 0) out[array] = {so_far.count, total};
}

__device__ void store_gap(const ListPlace& place, uint64_t i, uint64_t gap) {
  if (place.gap_bytes == 2) {
    store_element<uint16_t>(place.gaps, i, uint16_t(gap));
  } else if (place.gap_bytes == 4) {
    store_element<uint32_t>(place.gaps, i, uint32_t(gap));
  } else {
    store_element<uint64_t>(place.gaps, i, gap);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    write_tiles(const PairArray* arrays, const uint32_t* owners, uint64_t num_tiles,
                DiffOutput changes, const TilePlace* tiles, const ListPlace* places) {
  const uint64_t tile = uint64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (tile >= num_tiles) return;
  const TileChanges own = changes.tiles[tile];
  if (own.count == 0) return;
  const uint32_t array = owners[tile];
  const ListPlace place = places[array];
  const TilePlace at = tiles[tile];
  const PairArray& pair = arrays[array];
  const uint64_t start = (tile - pair.first_tile) * tile_elements(sizeof(T));
  const uint16_t* positions = changes.positions + own.first;
  for (uint32_t i = lane_id(); i < own.count; i += kWarp) {
    const uint64_t position = start + positions[i];
    const uint64_t resume = i == 0 ? at.resume : start + positions[i - 1] + 1;
    store_gap(place, at.first_change + i, position - resume);
    store_element<T>(place.values, at.first_change + i,
                     static_cast<const T*>(changes.values)[own.first + i]);
    if (place.old_values != nullptr) {
      // Somebody who writes to a new array while it is compared may leave positions of anything.
      const uint64_t last = pair.num_elements - 1;
      store_element<T>(place.old_values, at.first_change + i,
                       load_element<T>(pair.old_data, position < last ? position : last));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    write_tile_offsets(const PairArray* arrays, const uint32_t* owners, uint64_t num_tiles,
                       DiffOutput changes, const TilePlace* tiles, const OffsetPlace* places) {
  const uint64_t tile = uint64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (tile >= num_tiles) return;
  const TileChanges own = changes.tiles[tile];
  if (own.count == 0) return;
  const uint32_t array = owners[tile];
  const OffsetPlace place = places[array];
  const uint64_t at = tiles[tile].first_change;
  const uint32_t start = uint32_t((tile - arrays[array].first_tile) * tile_elements(sizeof(T)));
  for (uint32_t i = lane_id(); i < own.count; i += kWarp) {
    place.offsets[at + i] = start + changes.positions[own.first + i];
    static_cast<T*>(place.values)[at + i] = static_cast<const T*>(changes.values)[own.first + i];
  }
}

template <class T>
Status launch_write(const PairBatch& batch, const DiffOutput& changes, const TilePlace* tiles,
                    const ListPlace* places, Stream stream) {
  write_tiles<T><<<unsigned((batch.num_tiles() + kWarps - 1) / kWarps), kThreads, 0, stream>>>(
      batch.device_arrays(), batch.tile_owners(), batch.num_tiles(), changes, tiles, places);
  return launched("write_tiles");
}

}  // namespace

Status place_changes(const PairBatch& batch, const DiffOutput& changes, TilePlace* tiles,
                     ArrayChanges* arrays, Stream stream) {
  const uint64_t num_tiles = batch.num_tiles();
  const uint32_t num_arrays = uint32_t(batch.arrays().size());
  if (num_arrays == 0) return {};
  if (num_tiles != 0) {
    find_inner_gaps<<<unsigned((num_tiles + kWarps - 1) / kWarps), kThreads, 0, stream>>>(
        changes, num_tiles, tiles);
    DW_RETURN_IF_ERROR(launched("find_inner_gaps"));
  }
  place_tiles<<<num_arrays, kThreads, 0, stream>>>(batch.device_arrays(), num_arrays, num_tiles,
                                                   tile_elements(batch.width()), changes, tiles,
                                                   arrays);
  return launched("place_tiles");
}

Status write_lists(const PairBatch& batch, const DiffOutput& changes, const TilePlace* tiles,
                   const ListPlace* places, Stream stream) {
  if (batch.num_tiles() == 0) return {};
  return with_width(batch.width(), [&]<class T>() {
    return launch_write<T>(batch, changes, tiles, places, stream);
  });
}

Status write_offsets(const PairBatch& batch, const DiffOutput& changes, const TilePlace* tiles,
                     const OffsetPlace* places, Stream stream) {
  if (batch.num_tiles() == 0) return {};
  const unsigned num_blocks = unsigned((batch.num_tiles() + kWarps - 1) / kWarps);
  return with_width(batch.width(), [&]<class T>() {
    write_tile_offsets<T><<<num_blocks, kThreads, 0, stream>>>(
        batch.device_arrays(), batch.tile_owners(), batch.num_tiles(), changes, tiles, places);
    return launched("write_tile_offsets");
  });
}

}  // namespace deltawire::cuda
