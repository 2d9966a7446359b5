#include "kernels/cuda/diff.h"

#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/hashed_bytes.cuh"
#include "kernels/cuda/sum_words.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kWarps = 8, kThreads = kWarps * kWarp;
constexpr unsigned kRounds = kTileBytes / kThreads / 16;  // of sixteen bytes a lane
constexpr unsigned kMostInFlight = 4;                     // rounds whose loads are under way
constexpr unsigned kResident = 4;                         // tiles that a multiprocessor works on

// Changes of a warp that are kept in shared memory. Little of it lets many tiles be under way at
// once; denser tiles are looked at twice.
constexpr uint32_t kStaged = 512;

// A warp's part of a tile and the list of changes it makes.
template <class T>
struct Slab {
  static constexpr uint32_t kElements = tile_elements(sizeof(T)) / kWarps;
  uint32_t first;  // element, within the tile
  uint16_t* positions;
  T* values;
  uint32_t room;  // of both; what is more is counted only
  uint32_t count = 0;
};

// All lanes have loaded; new values are of the old type already.
template <class T>
__device__ void note_changes(const uint4& old_bits, const uint4& new_bits, uint32_t at,
                             Slab<T>* slab) {
  uint32_t mask = changed_mask<T>(old_bits, new_bits);
  if (__ballot_sync(kAllLanes, mask != 0) == 0) return;
  uint32_t total;
  constexpr unsigned kCountBits = sizeof(T) == 1 ? 5 : sizeof(T) == 2 ? 4 : sizeof(T) == 4 ? 3 : 2;
  uint32_t to = slab->count + count_before<kCountBits>(__popc(mask), &total);
  while (mask != 0) {
    const unsigned j = __ffs(int(mask)) - 1;
    mask &= mask - 1;
    if (to < slab->room) {
      slab->positions[to] = uint16_t(at + j);
      slab->values[to] = element_of<T>(new_bits, j);
    }
    ++to;
  }
  slab->count += total;
}

// New elements are added to `sums`.
template <class T, NewKind kKind, class Sums>
__device__ void scan_aligned(const PairArray& array, uint64_t tile_start, Slab<T>* slab,
                             Sums* sums) {
  constexpr unsigned kPer = 16 / sizeof(T);
  const uint64_t start = tile_start + slab->first + lane_id() * kPer;
  // Sums need registers of their own.
  constexpr unsigned kInFlight =
      NewBits<T, kKind>::kVectors * (Sums::kNone ? 1 : 2) > 2 ? kMostInFlight / 2 : kMostInFlight;
  for (unsigned round = 0; round < kRounds; round += kInFlight) {
    uint4 old_bits[kInFlight];
    NewBits<T, kKind> new_bits[kInFlight];
#pragma unroll
    for (unsigned k = 0; k < kInFlight; ++k) {
      const uint64_t i = start + (round + k) * kWarp * kPer;
      old_bits[k] =
          __ldcs(reinterpret_cast<const uint4*>(static_cast<const T*>(array.old_data) + i));
      new_bits[k].load(array.new_data, i);
    }
#pragma unroll
    for (unsigned k = 0; k < kInFlight; ++k) {
      const uint64_t i = start + (round + k) * kWarp * kPer;
      const uint4 now = new_bits[k].beside(old_bits[k], array.new_data, i);
      sums->add(now, round + k);
      note_changes<T>(old_bits[k], now, slab->first + ((round + k) * kWarp + lane_id()) * kPer,
                      slab);
    }
  }
}

// Of a warp's slab of new elements. A round of the scan is a segment.
struct SlabSums {
  static constexpr bool kNone = false;
  const ThreadWordKeys words = ThreadWordKeys::make();
  const SegmentKeys segments;
  SumLanes lanes;
  static_assert(kRounds == SegmentKeys::kCount && kWarp * 16 == sum128::kSegmentBytes);

  __device__ explicit SlabSums(uint64_t first_byte)
      : segments(first_byte / sum128::kSegmentBytes) {}
  __device__ void add(const uint4& bytes, unsigned round) {
    lanes.add(bytes, words, segments, round);
  }
  // As scan_any() looks at them: bytes [begin, end) of the array, the slab's.
  template <NewKind kKind>
  __device__ void add_any(const void* data, uint64_t begin, uint64_t end) {
#pragma unroll 1
    for (unsigned round = 0; round < kRounds; ++round) {
      const uint64_t at = begin + (round * kWarp + lane_id()) * 16;
      const uint32_t count = at >= end ? 0 : uint32_t(min(uint64_t{16}, end - at));
      const uint64_t low = HashedBytes<kKind>::load_word(data, at, min(count, 8U));
      const uint64_t high = HashedBytes<kKind>::load_word(data, at + 8, count <= 8 ? 0 : count - 8);
      lanes.add_some({uint32_t(low), uint32_t(low >> 32), uint32_t(high), uint32_t(high >> 32)},
                     count, words, segments, round);
    }
  }
};

struct NoSums {
  static constexpr bool kNone = true;
  __device__ explicit NoSums(uint64_t) {}
  __device__ void add(const uint4&, unsigned) {}
  template <NewKind kKind>
  __device__ void add_any(const void*, uint64_t, uint64_t) {}
};

// The last tile of an array, and arrays that do not begin at sixteen bytes.
template <class T, NewKind kKind>
__device__ void scan_any(const PairArray& array, uint64_t tile_start, uint32_t length,
                         Slab<T>* slab) {
  const uint32_t end = min(length, slab->first + Slab<T>::kElements);
  for (uint32_t at = slab->first; at < end; at += kWarp) {
    const uint32_t own = at + lane_id();
    T now = 0;
    bool differs = false;
    if (own < end) {
      now = load_new<T, kKind>(array.new_data, tile_start + own);
      differs = load_element<T>(array.old_data, tile_start + own) != now;
    }
    const uint32_t ballot = __ballot_sync(kAllLanes, differs);
    const uint32_t to = slab->count + lanes_before(ballot);
    if (differs && to < slab->room) {
      slab->positions[to] = uint16_t(own);
      slab->values[to] = now;
    }
    slab->count += __popc(ballot);
  }
}

template <class T, NewKind kKind, bool kSums>
__global__ void __launch_bounds__(kThreads, kResident)
    diff_tiles(const PairArray* arrays, const uint32_t* owners, uint64_t first_tile,
               DiffOutput out) {
  constexpr uint32_t kTile = tile_elements(sizeof(T));
  __shared__ T staged_values[kWarps][kStaged];
  __shared__ uint16_t staged_positions[kWarps][kStaged];
  __shared__ uint32_t counts[kWarps];
  __shared__ uint64_t place;
  __shared__ uint64_t slab_sums[kSums ? kWarps : 1][sum128::kLanes];
  const uint64_t tile = first_tile + blockIdx.x;
  const uint32_t owner = owners[tile];
  const PairArray array = arrays[owner];
  const uint64_t start = (tile - array.first_tile) * kTile;
  const uint32_t length = uint32_t(min(uint64_t{kTile}, array.num_elements - start));
  const unsigned warp = threadIdx.x / kWarp;
  const auto scan = [&](Slab<T>* slab, auto* sums) {
    if (length == kTile && is_aligned16(array.old_data) && is_aligned16(array.new_data)) {
      scan_aligned<T, kKind>(array, start, slab, sums);
    } else {
      scan_any<T, kKind>(array, start, length, slab);
      sums->template add_any<kKind>(array.new_data, (start + slab->first) * sizeof(T),
                                    array.num_elements * sizeof(T));
    }
  };
  Slab<T> slab{warp * Slab<T>::kElements, staged_positions[warp], staged_values[warp], kStaged};
  std::conditional_t<kSums, SlabSums, NoSums> sums((start + slab.first) * sizeof(T));
  scan(&slab, &sums);
  if constexpr (kSums) {
    sums.lanes.join_warp();
    if (lane_id() == 0) {
      slab_sums[warp][0] = sums.lanes.sums[0];
      slab_sums[warp][1] = sums.lanes.sums[1];
    }
  }

  if (lane_id() == 0) counts[warp] = slab.count;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t sum = 0;
    for (uint32_t& count : counts) {
      const uint32_t own = count;
      count = sum;
      sum += own;
    }
    place = sum == 0 ? 0 : atomicAdd(reinterpret_cast<unsigned long long*>(out.total), sum);
    if (place + sum > out.capacity) place = kNoRoom;
    out.tiles[tile] = {place, sum};
  } else if (kSums && threadIdx.x >= kWarp && threadIdx.x < kWarp + sum128::kLanes) {
    const unsigned lane = lane_id();
    unsigned long long sum = 0;
    for (unsigned w = 0; w < (kSums ? kWarps : 1); ++w) sum += slab_sums[w][lane];
    atomicAdd(reinterpret_cast<unsigned long long*>(out.sums) + 2 * owner + lane, sum);
  }
  __syncthreads();
  if (place == kNoRoom) return;
  const uint64_t to = place + counts[warp];
  uint16_t* const positions = out.positions + to;
  T* const values = static_cast<T*>(out.values) + to;
  if (slab.count > kStaged) {
    Slab<T> all{slab.first, positions, values, slab.count};
    NoSums added_before(0);
    return scan(&all, &added_before);
  }
  for (uint32_t i = lane_id(); i < slab.count; i += kWarp) {
    positions[i] = slab.positions[i];
    values[i] = slab.values[i];
  }
}

template <class T, NewKind kKind>
Status launch(const PairBatch& batch, uint64_t first_tile, uint64_t num_tiles,
              const DiffOutput& out, Stream stream) {
  const auto kernel =
      out.sums == nullptr ? diff_tiles<T, kKind, false> : diff_tiles<T, kKind, true>;
  kernel<<<unsigned(num_tiles), kThreads, 0, stream>>>(batch.device_arrays(), batch.tile_owners(),
                                                       first_tile, out);
  return launched("diff_tiles");
}

}  // namespace

Status diff(const PairBatch& batch, NewKind kind, uint64_t first_tile, uint64_t num_tiles,
            const DiffOutput& out, Stream stream) {
  if (num_tiles == 0) return {};
  return with_kind(batch.width(), kind, [&]<class T, NewKind kKind>() {
    return launch<T, kKind>(batch, first_tile, num_tiles, out, stream);
  });
}

}  // namespace deltawire::cuda
