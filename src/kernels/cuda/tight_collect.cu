// The scan of `tight` for an encoder: both arrays are read once, and every change is noted with its
// rank among the elements of its class. A thread block for each block.
#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/staged_rows.cuh"
#include "kernels/cuda/tight_encode.h"
#include "kernels/cuda/tight_scan.cuh"
#include "kernels/cuda/warp_bits.cuh"
#include "kernels/cuda/widths.h"
#include "kernels/cuda/written_sums.cuh"

namespace deltawire::cuda {
namespace {

using namespace deltawire::tight;

constexpr unsigned kThreads = 256;
// Blocks that a multiprocessor works on: while one waits for memory, the others have something to
// do. On an H200 that is faster than to fetch a step ahead with fewer of them.
constexpr unsigned kResident = 5;

template <class T, NewKind kKind>
using EncodeStep = StepOf<sizeof(T) == 8                                   ? 8
                          : sizeof(T) == 4 || kKind == NewKind::kF32AsBf16 ? 16
                                                                           : 32,
                          kThreads>;

// New elements as they are staged: those that are made of marks are whole there.
constexpr NewKind staged_as(NewKind kind) {
  return kind == NewKind::kMarkedFp8 ? NewKind::kSame : kind;
}
template <class T, NewKind kKind>
struct NewElement {
  using Type = T;
};
template <>
struct NewElement<uint16_t, NewKind::kF32AsBf16> {
  using Type = uint32_t;
};

// In shared memory, one for each thread block.
template <class T, NewKind kKind>
struct CollectMemory {
  using Step = EncodeStep<T, kKind>;
  using New = typename NewElement<T, kKind>::Type;
  StagedRows<T, Step::kLaneElements, kThreads> old_rows;
  StagedRows<New, Step::kLaneElements, kThreads> new_rows;
  StepScan<Step> scan;
  uint32_t num_changes[Step::kWarps];                    // of each warp's elements, in this step
  uint32_t first_rank[Step::kWarps][kMaxClasses];        // of each warp's elements
  uint16_t waiting[kThreads];                            // changes, in order, one to a thread
  uint16_t class_changes[2][Step::kWarps][kMaxClasses];  // of those, by the warp that has them
  uint32_t other_steps, no_room;
  uint64_t sums[sum128::kLanes];

  __device__ T new_element(unsigned i) const {
    const New bits = new_rows.element(i);
    if constexpr (staged_as(kKind) == NewKind::kSame) {
      return bits;
    } else if constexpr (kKind == NewKind::kF32AsBf16) {
      return T(bf16_of_f32(bits));
    } else {
      return T(bf16_of_f32(f32_of_f16(bits)));
    }
  }
};

// Looks at a thread's rows: counts the old one and returns which elements differ, a bit for each.
template <class T, NewKind kKind>
__device__ uint32_t look_at_row(CollectMemory<T, kKind>* memory, KeyBits keys, RowCounts* counts) {
  using Step = EncodeStep<T, kKind>;
  constexpr unsigned kPer = 16 / sizeof(T), kChunks = Step::kLaneElements / kPer;
  using Bits = NewBits<T, staged_as(kKind)>;
  uint4 old_bits[kChunks];
  uint32_t mask = 0;
#pragma unroll
  for (unsigned i = 0; i < kChunks; ++i) {
    old_bits[i] = memory->old_rows.chunk(threadIdx.x, i);
    Bits now;
#pragma unroll
    for (unsigned v = 0; v < Bits::kVectors; ++v) {
      now.bits[v] = memory->new_rows.chunk(threadIdx.x, i * Bits::kVectors + v);
    }
    mask |= changed_mask<T>(old_bits[i], now.rounded()) << (i * kPer);
  }
  *counts =
      count_row<T, Step>([&](unsigned i) { return old_bits[i]; }, keys, memory->scan.one_hot,
                         [&](unsigned g, const RowCounts& row) { memory->scan.note(g, row); });
  return mask;
}

// The same for a step of which only `count` elements are there.
template <class T, NewKind kKind>
__device__ uint32_t look_at_row_in_part(CollectMemory<T, kKind>* memory, uint32_t count,
                                        KeyBits keys, RowCounts* counts) {
  using Step = EncodeStep<T, kKind>;
  *counts = count_row_in_part<T, Step>(
      memory->old_rows, count, keys, memory->scan.one_hot,
      [&](unsigned g, const RowCounts& row) { memory->scan.note(g, row); });
  uint32_t mask = 0;
  for (unsigned j = 0; j < Step::kLaneElements; ++j) {
    const uint32_t i = threadIdx.x * Step::kLaneElements + j;
    if (i < count && memory->old_rows.element(i) != memory->new_element(i)) {
      mask |= 1U << j;
    }
  }
  return mask;
}

// Elements of class c before element `in_step` of this step in their block.
template <class T, NewKind kKind>
__device__ uint32_t rank_of(const CollectMemory<T, kKind>& memory, KeyBits keys, uint32_t in_step,
                            unsigned c) {
  using Step = EncodeStep<T, kKind>;
  const unsigned owner = in_step / Step::kLaneElements, in_lane = in_step % Step::kLaneElements;
  const uint32_t group = in_step / Step::kGroupElements * Step::kGroupElements;
  const uint32_t same = class_mask<T>(memory.old_rows, group, keys, memory.scan, c);
  return memory.first_rank[owner / kWarp][c] + memory.scan.before_of(c, owner) +
         memory.scan.earlier_of(c, owner, in_lane / Step::kGroupElements) +
         __popc(same & ((1U << in_step % Step::kGroupElements) - 1));
}

template <class T>
__device__ bool has_whole_words(const TightEncodeBlock& block) {
  return block.num_elements * sizeof(T) % sum128::kWordBytes == 0;
}

// Whether a block's words are added one by one: they come in small pieces, or other blocks have
// parts of them.
template <class T, NewKind kKind>
__device__ bool adds_words(const TightEncodeArray& array, const TightEncodeBlock& block) {
  const bool at_end = block.place.begin + block.num_elements == array.num_elements;
  return block.place.piece_bytes<T>() < StepSums<T, EncodeStep<T, kKind>>::kMinPiece ||
         !(has_whole_words<T>(block) || at_end);
}

// Adds the new elements of a step, `count` from `first` of their block on. Warps take whole
// segments, not their own rows: so each thread has the same keys all the time. Words that blocks
// share are the one's that has their first byte, and are read again.
template <class T, NewKind kKind>
__device__ void add_step(const CollectMemory<T, kKind>& memory, const TightEncodeArray& array,
                         const TightEncodeBlock& block, bool by_words, uint32_t first,
                         uint32_t count, SumLanes* lanes) {
  using Bits = NewBits<T, staged_as(kKind)>;
  constexpr unsigned kRowChunks = decltype(memory.new_rows)::kChunks;
  const BlockPlace& place = block.place;
  if (by_words) {
    const auto load = [&](uint64_t byte, uint32_t i) {
      if constexpr (kKind != NewKind::kMarkedFp8) {  // which have rows of 32 and more
        if (!has_whole_words<T>(block) || place.piece_bytes<T>() < sum128::kWordBytes) {
          const uint64_t left = array.num_elements * sizeof(T) - byte;
          return HashedBytes<kKind>::load_word(array.new_data, byte,
                                               unsigned(min(uint64_t{8}, left)));
        }
      }
      uint64_t word = 0;
      for (unsigned j = 0; j < 8 / sizeof(T); ++j) {
        word |= uint64_t{memory.new_element(i + j)} << (8 * sizeof(T) * j);
      }
      return word;
    };
    add_words<T>(place, first, count, load, lanes);
    return;
  }
  const auto load = [&](unsigned i) {
    Bits now;
#pragma unroll
    for (unsigned v = 0; v < Bits::kVectors; ++v) {
      const unsigned at = (i * kThreads + threadIdx.x) * Bits::kVectors + v;
      now.bits[v] = memory.new_rows.chunk(at / kRowChunks, at % kRowChunks);
    }
    return now.rounded();
  };
  StepSums<T, EncodeStep<T, kKind>>::add(place, first, count, load, lanes);
}

// A thread's row of new elements: the old ones, but for those that `marks` says have changed.
template <class Memory>
__device__ void make_row(Memory* memory, const MarkedFp8& array, const BlockPlace& place,
                         uint32_t step, uint32_t marks) {
  using Rows = decltype(memory->new_rows);
  static_assert(Rows::kLaneElements == 32);  // a word of marks
#pragma unroll
  for (unsigned i = 0; i < Rows::kChunks; ++i) {
    memory->new_rows.chunk(threadIdx.x, i) = memory->old_rows.chunk(threadIdx.x, i);
  }
  for (; marks != 0; marks &= marks - 1) {
    const unsigned i = threadIdx.x * 32 + __ffs(int(marks)) - 1;
    memory->new_rows.set(i, make_marked(array, place(step + i)));
  }
}

template <class T, NewKind kKind, bool kSums>
__global__ void __launch_bounds__(kThreads, kResident) collect(TightEncodeWork work) {
  using Memory = CollectMemory<T, kKind>;
  using Step = EncodeStep<T, kKind>;
  extern __shared__ uint4 shared_memory[];
  Memory& memory = *reinterpret_cast<Memory*>(shared_memory);
  const unsigned thread = threadIdx.x, warp = thread / kWarp, lane = lane_id();
  const TightEncodeBlock block = work.blocks[blockIdx.x];
  const TightEncodeArray& array = work.arrays[block.array];
  const KeyBits keys(array.keys);
  prepare_scan(array.keys, &memory.scan);
  if (thread == 0) memory.other_steps = memory.no_room = 0;
  if (thread < sum128::kLanes) memory.sums[thread] = 0;

  const void *const old_data = array.old_data, *const new_data = array.new_data;
  const BlockPlace place = block.place;
  const uint32_t size = block.num_elements;
  const bool chunks = has_chunks<T>(old_data, place) && is_aligned16(new_data);
  bool no_room = false;
  uint32_t other_steps = 0;  // a bit for each class with a step other than +1 and -1
  uint32_t num_changed = 0;  // of class `lane` so far, in every warp
  uint32_t seen = 0;         // elements of class `thread` % 8 so far
  [[maybe_unused]] const bool by_words = adds_words<T, kKind>(array, block);
  [[maybe_unused]] SumLanes lanes;
  for (uint32_t step = 0; step < size; step += Step::kElements) {
    const uint32_t there = min(size - step, uint32_t{Step::kElements});
    const bool whole = chunks && there == Step::kElements;
    memory.old_rows.fetch(old_data, place, step, there, whole);
    [[maybe_unused]] uint32_t marks = 0;
    if constexpr (kKind != NewKind::kMarkedFp8) {
      memory.new_rows.fetch(new_data, place, step, there, whole);
    } else if (const uint32_t own = step + thread * 32; own < size) {  // rows are of whole words
      marks = static_cast<const MarkedFp8*>(new_data)->changed[place(own) / 32];
    }
    await_fetch();
    __syncthreads();
    if constexpr (kKind == NewKind::kMarkedFp8) {
      make_row(&memory, *static_cast<const MarkedFp8*>(new_data), place, step, marks);
      __syncthreads();
    }
    if constexpr (kSums) add_step<T, kKind>(memory, array, block, by_words, step, there, &lanes);
    RowCounts row;
    const uint32_t mask = there == Step::kElements
                              ? look_at_row<T, kKind>(&memory, keys, &row)
                              : look_at_row_in_part<T, kKind>(&memory, there, keys, &row);
    finish_scan<Step>(row, &memory.scan);
    const uint32_t changes_through = sum_through(__popc(mask));
    if (lane == kWarp - 1) memory.num_changes[warp] = changes_through;
    __syncthreads();
    if (thread < Step::kWarps * kMaxClasses) {
      const unsigned c = thread % kMaxClasses;
      uint32_t before = seen;
      for (unsigned w = 0; w < Step::kWarps; ++w) {
        if (w == thread / kMaxClasses) before = seen;
        seen += memory.scan.total_of(c, w);
      }
      memory.first_rank[thread / kMaxClasses][c] = before;
    }
    // Changes in order of position, then one to a thread.
    uint32_t first = changes_through - __popc(mask), total = 0;
#pragma unroll
    for (unsigned w = 0; w < Step::kWarps; ++w) {
      const uint32_t of_warp = memory.num_changes[w];
      first += w < warp ? of_warp : 0;
      total += of_warp;
    }
    unsigned turn = 0;  // one set of counts may still be read while the other is made
    for (uint32_t from = 0; from < total; from += kThreads, turn ^= 1) {
      auto& class_changes = memory.class_changes[turn];
      uint32_t to = first - from;
      for (uint32_t left = mask; left != 0; left &= left - 1, ++to) {
        if (to < kThreads) {
          memory.waiting[to] = uint16_t(thread * Step::kLaneElements + __ffs(int(left)) - 1);
        }
      }
      if (lane < kMaxClasses) class_changes[warp][lane] = 0;
      __syncthreads();
      const bool own = from + thread < total;
      unsigned c = kMaxClasses;
      uint32_t in_step = 0, same = 0;
      T old_value = 0;
      if (from + warp * kWarp < total) {
        if (own) {
          in_step = memory.waiting[thread];
          old_value = memory.old_rows.element(in_step);
          c = memory.scan.class_of(keys.of(old_value));
        }
        same = __match_any_sync(kAllLanes, c);
        if (own && lanes_before(same) == 0) class_changes[warp][c] = uint16_t(__popc(same));
      }
      __syncthreads();
      uint32_t before = 0;  // changes of class `lane` before this warp's
      if (lane < kMaxClasses) {
#pragma unroll
        for (unsigned w = 0; w < Step::kWarps; ++w) {
          if (w == warp) before = num_changed;
          num_changed += class_changes[w][lane];
        }
      }
      before = __shfl_sync(kAllLanes, before, c % kMaxClasses);
      if (own) {
        const uint32_t at = array.room[c] + before + lanes_before(same);
        const T change = T(memory.new_element(in_step) - old_value);
        if ((T(change + 1) & T(~T{2})) != 0) other_steps |= 1U << c;
        if (at >= array.room[c + 1]) {
          no_room = true;
        } else {
          work.ranks[block.first_change + at] = rank_of<T, kKind>(memory, keys, in_step, c);
          static_cast<T*>(work.old_values)[block.first_change + at] = old_value;
          static_cast<T*>(work.steps)[block.first_change + at] = change;
        }
      }
    }
    __syncthreads();  // before the next step takes the place of this one
  }
  other_steps = __reduce_or_sync(kAllLanes, other_steps);
  const bool warp_lacks_room = __any_sync(kAllLanes, no_room);
  if (lane == 0 && other_steps != 0) atomicOr(&memory.other_steps, other_steps);
  if (lane == 0 && warp_lacks_room) memory.no_room = 1;
  if constexpr (kSums) lanes.add_warp_to(memory.sums);
  __syncthreads();
  if (warp != 0) return;
  TightEncodeResult& result = work.results[blockIdx.x];
  const uint32_t own_count = lane < kMaxClasses ? num_changed : 0;
  if (lane < kMaxClasses) result.count[lane] = own_count;
  if (lane < sum128::kLanes) result.sums[lane] = memory.sums[lane];
  const uint32_t total = __reduce_add_sync(kAllLanes, own_count);
  if (lane == 0) {
    result.unit_classes = ~memory.other_steps & ((1U << array.keys.num_classes) - 1);
    result.total = total;
    result.num_bytes = 0;
    result.no_room = memory.no_room;
  }
}

}  // namespace

Status collect_tight(const TightEncodeWork& work, unsigned width, NewKind kind, Stream stream) {
  if (work.num_blocks == 0) return {};
  return with_kind(width, kind, [&]<class T, NewKind kKind>() -> Status {
    constexpr size_t kShared = sizeof(CollectMemory<T, kKind>);
    const auto kernel = work.with_sums ? collect<T, kKind, true> : collect<T, kKind, false>;
    DW_CUDA(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kShared)));
    kernel<<<work.num_blocks, kThreads, kShared, stream>>>(work);
    return launched("collect");
  });
}

}  // namespace deltawire::cuda
