// Tiles take their numbers in the order in which they start, so that those before a tile are under
// way or done when it looks back at what they found (Merrill and Garland, "Single-pass parallel
// prefix scan with decoupled look-back").
#include "kernels/cuda/ordered_diff.h"

#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kWarps = 8, kThreads = kWarps * kWarp;
constexpr unsigned kInFlight = 4;  // loads of sixteen bytes that are under way
constexpr uint32_t kStaged = 512;  // changes of a warp that are kept; denser ones are read again

// What a tile says of itself, in one word: nothing yet, its own count, or that of all up to it.
constexpr uint64_t kOwn = uint64_t{1} << 62, kAll = uint64_t{2} << 62, kCount = kOwn - 1;

struct State {
  uint64_t next_tile;
  uint64_t tiles[];
};

__device__ uint64_t load_word(const uint64_t* at) {
  return *static_cast<const volatile uint64_t*>(at);
}
__device__ void store_word(uint64_t* at, uint64_t word) {
  *static_cast<volatile uint64_t*>(at) = word;
}

// A warp's part of a tile. Calls note(number, element of the tile, value) for each change, numbers
// ascending with the elements, and returns how many there are.
template <class T>
struct Slab {
  static constexpr uint32_t kElements = tile_elements(sizeof(T)) / kWarps;
  const PairArray& array;
  uint64_t tile_start;
  uint32_t first, length;  // of the slab, and of the whole tile

  template <NewKind kKind, class Note>
  __device__ uint32_t scan_aligned(const Note& note) const {
    constexpr unsigned kPer = 16 / sizeof(T), kRounds = kElements / kPer / kWarp;
    constexpr unsigned kCountBits = sizeof(T) == 1   ? 5
                                    : sizeof(T) == 2 ? 4
                                    : sizeof(T) == 4 ? 3
                                                     : 2;
    uint32_t count = 0;
    for (unsigned round = 0; round < kRounds; round += kInFlight) {
      const uint32_t from = first + (round * kWarp + lane_id()) * kPer;
      uint4 old_bits[kInFlight];
      NewBits<T, kKind> new_bits[kInFlight];
#pragma unroll
      for (unsigned k = 0; k < kInFlight; ++k) {
        const uint64_t i = tile_start + from + k * kWarp * kPer;
        old_bits[k] = load_streaming(static_cast<const T*>(array.old_data) + i);
        new_bits[k].load(array.new_data, i);
      }
#pragma unroll
      for (unsigned k = 0; k < kInFlight; ++k) {
        const uint4 now = new_bits[k].rounded();
        uint32_t mask = changed_mask<T>(old_bits[k], now);
        if (__ballot_sync(kAllLanes, mask != 0) == 0) continue;
        uint32_t total;
        uint32_t number = count + count_before<kCountBits>(__popc(mask), &total);
        for (; mask != 0; mask &= mask - 1) {
          const unsigned j = __ffs(int(mask)) - 1;
          note(number++, from + k * kWarp * kPer + j, element_of<T>(now, j));
        }
        count += total;
      }
    }
    return count;
  }

  template <NewKind kKind, class Note>
  __device__ uint32_t scan_any(const Note& note) const {
    const uint32_t end = min(length, first + kElements);
    uint32_t count = 0;
    for (uint32_t at = first; at < end; at += kWarp) {
      const uint32_t own = at + lane_id();
      T now = 0;
      bool differs = false;
      if (own < end) {
        now = load_new<T, kKind>(array.new_data, tile_start + own);
        differs = load_element<T>(array.old_data, tile_start + own) != now;
      }
      const uint32_t ballot = __ballot_sync(kAllLanes, differs);
      if (differs) note(count + lanes_before(ballot), own, now);
      count += __popc(ballot);
    }
    return count;
  }

  template <NewKind kKind, class Note>
  __device__ uint32_t scan(const Note& note) const {
    const bool aligned = is_aligned16(array.old_data) && is_aligned16(array.new_data);
    return aligned && length == tile_elements(sizeof(T)) ? scan_aligned<kKind>(note)
                                                         : scan_any<kKind>(note);
  }

  template <class Note>
  __device__ uint32_t scan(NewKind kind, const Note& note) const {
    if constexpr (sizeof(T) == 2) {
      if (kind == NewKind::kF32AsBf16) return scan<NewKind::kF32AsBf16>(note);
      if (kind == NewKind::kF16AsBf16) return scan<NewKind::kF16AsBf16>(note);
    }
    return scan<NewKind::kSame>(note);
  }
};

__device__ uint64_t warp_sum(uint64_t x) {
#pragma unroll
  for (unsigned step = 1; step < kWarp; step *= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// Says what this tile found and learns how many changes lie before it. For one whole warp.
__device__ uint64_t count_before_tile(State* state, uint64_t tile, uint64_t own) {
  if (lane_id() == 0) store_word(&state->tiles[tile], (tile == 0 ? kAll : kOwn) | own);
  uint64_t before = 0;
  for (uint64_t end = tile; end != 0;) {
    uint64_t word;
    do {  // before the first tile there is nothing
      word = lane_id() < end ? load_word(&state->tiles[end - 1 - lane_id()]) : kAll;
    } while (__any_sync(kAllLanes, (word & ~kCount) == 0));
    const uint32_t known = __ballot_sync(kAllLanes, (word & kAll) != 0);
    const unsigned last = known == 0 ? kWarp - 1 : __ffs(int(known)) - 1;
    before += warp_sum(lane_id() <= last ? word & kCount : 0);
    if (known != 0) break;
    end -= kWarp;
  }
  if (tile != 0 && lane_id() == 0) store_word(&state->tiles[tile], kAll | (before + own));
  return before;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    diff_tiles_in_order(const PairArray* arrays, const uint32_t* owners, const NewKind* kinds,
                        State* state, OrderedLists out) {
  constexpr uint32_t kTile = tile_elements(sizeof(T));
  __shared__ T staged_values[kWarps][kStaged];
  __shared__ uint16_t staged_positions[kWarps][kStaged];
  __shared__ uint32_t counts[kWarps];
  __shared__ uint64_t shared_tile, place;
  if (threadIdx.x == 0) {
    shared_tile = atomicAdd(reinterpret_cast<unsigned long long*>(&state->next_tile), 1ULL);
  }
  __syncthreads();
  const uint64_t tile = shared_tile;
  const PairArray array = arrays[owners[tile]];
  const NewKind kind = kinds[owners[tile]];
  const uint64_t start = (tile - array.first_tile) * kTile;
  const unsigned warp = threadIdx.x / kWarp;
  const Slab<T> slab{array, start, warp * Slab<T>::kElements,
                     uint32_t(min(uint64_t{kTile}, array.num_elements - start))};
  const uint32_t count = slab.scan(kind, [&](uint32_t number, uint32_t element, T value) {
    if (number >= kStaged) return;
    staged_positions[warp][number] = uint16_t(element);
    staged_values[warp][number] = value;
  });
  if (lane_id() == 0) counts[warp] = count;
  __syncthreads();

  uint32_t before_warp = 0, of_tile = 0;
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w == warp) before_warp = of_tile;
    of_tile += counts[w];
  }
  if (warp == 0) {
    const uint64_t before = count_before_tile(state, tile, of_tile);
    if (lane_id() == 0) place = before;
  }
  __syncthreads();
  if (place + of_tile > out.capacity) return;
  uint64_t* const positions = out.positions + place + before_warp;
  T* const values = static_cast<T*>(out.values) + place + before_warp;
  if (count > kStaged) {
    slab.scan(kind, [&](uint32_t number, uint32_t element, T value) {
      positions[number] = start + element;
      values[number] = value;
    });
    return;
  }
  for (uint32_t i = lane_id(); i < count; i += kWarp) {
    positions[i] = start + staged_positions[warp][i];
    values[i] = staged_values[warp][i];
  }
}

__global__ void find_first(const PairArray* arrays, uint32_t num_arrays, uint64_t num_tiles,
                           const State* state, uint64_t* first) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > num_arrays) return;
  const uint64_t tile = i < num_arrays ? arrays[i].first_tile : num_tiles;
  first[i] = tile == 0 ? 0 : state->tiles[tile - 1] & kCount;
}

template <class T>
Status launch(const PairBatch& batch, const NewKind* kinds, State* state, const OrderedLists& out,
              Stream stream) {
  diff_tiles_in_order<T><<<unsigned(batch.num_tiles()), kThreads, 0, stream>>>(
      batch.device_arrays(), batch.tile_owners(), kinds, state, out);
  return launched("diff_tiles_in_order");
}

}  // namespace

size_t ordered_diff_state_bytes(const PairBatch& batch) noexcept {
  return sizeof(State) + batch.num_tiles() * sizeof(uint64_t);
}

Status ordered_diff(const PairBatch& batch, const NewKind* kinds, void* state,
                    const OrderedLists& out, Stream stream) {
  const uint32_t num_arrays = uint32_t(batch.arrays().size());
  if (batch.num_tiles() == 0) {
    return fill_zero(out.first, (num_arrays + uint64_t{1}) * sizeof(uint64_t), stream);
  }
  auto* const words = static_cast<State*>(state);
  DW_RETURN_IF_ERROR(fill_zero(state, ordered_diff_state_bytes(batch), stream));
  DW_RETURN_IF_ERROR(with_width(
      batch.width(), [&]<class T>() { return launch<T>(batch, kinds, words, out, stream); }));
  constexpr unsigned kBlock = 128;
  find_first<<<num_arrays / kBlock + 1, kBlock, 0, stream>>>(batch.device_arrays(), num_arrays,
                                                             batch.num_tiles(), words, out.first);
  return launched("find_first");
}

}  // namespace deltawire::cuda
