// The scan of `tight` for an encoder: both arrays are read once, and every change is noted with its
// rank among the elements of its class. A warp for each block.
#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/staged_rows.cuh"
#include "kernels/cuda/tight_encode.h"
#include "kernels/cuda/tight_scan.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

using namespace deltawire::tight;

constexpr unsigned kThreads = 64, kWarps = kThreads / kWarp;

template <class T, NewKind kKind>
using EncodeStep = StepOf<sizeof(T) == 8                                   ? 8
                          : sizeof(T) == 4 || kKind == NewKind::kF32AsBf16 ? 16
                                                                           : 32>;

// In shared memory, one for each warp.
template <class T, NewKind kKind>
struct CollectMemory {
  using Step = EncodeStep<T, kKind>;
  static constexpr unsigned kNewBytes = kKind == NewKind::kF32AsBf16 ? 4 : sizeof(T);
  StagedRows<sizeof(T), Step::kLaneElements> old_rows[2];  // of this step and of the next
  StagedRows<kNewBytes, Step::kLaneElements> new_rows[2];
  WarpScan<Step> scan;
  uint16_t waiting[Step::kElements];  // changes of a step, in order, waiting for a lane each
  uint32_t counts[kMaxClasses], seen[kMaxClasses];

  __device__ T new_element(unsigned buffer, unsigned i) const {
    const auto& rows = new_rows[buffer];
    if constexpr (kKind == NewKind::kSame) {
      return rows.template element<T>(i);
    } else if constexpr (kKind == NewKind::kF32AsBf16) {
      return T(bf16_of_f32(rows.template element<uint32_t>(i)));
    } else {
      return T(bf16_of_f32(f32_of_f16(rows.template element<uint16_t>(i))));
    }
  }
};

// Bit j is set where element j of a lane's row differs. `count` of the step's elements are there.
template <class T, NewKind kKind>
__device__ uint32_t changed_in_row(const CollectMemory<T, kKind>& memory, unsigned buffer,
                                   uint32_t count) {
  using Step = EncodeStep<T, kKind>;
  constexpr unsigned kPer = 16 / sizeof(T), kVectors = NewBits<T, kKind>::kVectors;
  const unsigned lane = lane_id();
  uint32_t mask = 0;
  if (count == Step::kElements) {
#pragma unroll
    for (unsigned chunk = 0; chunk < Step::kLaneElements / kPer; ++chunk) {
      NewBits<T, kKind> now;
#pragma unroll
      for (unsigned v = 0; v < kVectors; ++v) {
        now.bits[v] = memory.new_rows[buffer].chunk(lane, chunk * kVectors + v);
      }
      mask |= changed_mask<T>(memory.old_rows[buffer].chunk(lane, chunk), now.rounded())
              << (chunk * kPer);
    }
    return mask;
  }
  for (unsigned j = 0; j < Step::kLaneElements; ++j) {
    const uint32_t i = lane * Step::kLaneElements + j;
    if (i < count &&
        memory.old_rows[buffer].template element<T>(i) != memory.new_element(buffer, i)) {
      mask |= 1U << j;
    }
  }
  return mask;
}

// Elements of class c before element `in_step` in this step.
template <class T, NewKind kKind>
__device__ uint32_t rank_in_step(const CollectMemory<T, kKind>& memory, const TightKeys& keys,
                                 unsigned buffer, uint32_t in_step, unsigned c) {
  using Step = EncodeStep<T, kKind>;
  const auto& scan = memory.scan;
  const unsigned owner = in_step / Step::kLaneElements, in_lane = in_step % Step::kLaneElements;
  const unsigned group = in_lane / Step::kGroupElements;
  uint32_t rank = scan.before[c][owner];
  for (unsigned g = 0; g < group; ++g) rank += scan.group_counts[g][owner] >> (4 * c) & 15;
  const uint32_t wanted = 1U << (4 * c);
  const uint32_t first = in_step / Step::kGroupElements * Step::kGroupElements;
#pragma unroll
  for (unsigned j = 0; j < Step::kGroupElements - 1; ++j) {
    const T element = memory.old_rows[buffer].template element<T>(first + j);
    rank += first + j < in_step && scan.one_hot[key_of(keys, element)] == wanted ? 1 : 0;
  }
  return rank;
}

template <class T, NewKind kKind>
__global__ void __launch_bounds__(kThreads) collect(TightEncodeWork work) {
  using Step = EncodeStep<T, kKind>;
  __shared__ CollectMemory<T, kKind> memories[kWarps];
  const unsigned warp = threadIdx.x / kWarp, lane = lane_id();
  const uint32_t index = blockIdx.x * kWarps + warp;
  if (index >= work.num_blocks) return;
  CollectMemory<T, kKind>& memory = memories[warp];
  const TightEncodeBlock block = work.blocks[index];
  const TightEncodeArray& array = work.arrays[block.array];
  const TightKeys& keys = array.keys;
  prepare_scan(keys, &memory.scan);
  if (lane < kMaxClasses) memory.counts[lane] = memory.seen[lane] = 0;
  __syncwarp();

  const uint64_t begin = uint64_t{block.number} << kBlockLog2;
  const uint64_t end = min(begin + (uint64_t{1} << kBlockLog2), array.num_elements);
  const bool aligned = is_aligned16(array.old_data) && is_aligned16(array.new_data);
  const auto fetch = [&](uint64_t step, unsigned buffer) {
    if (step < end) {
      const bool whole = aligned && step + Step::kElements <= end;
      memory.old_rows[buffer].fetch(array.old_data, step, end, whole);
      memory.new_rows[buffer].fetch(array.new_data, step, end, whole);
    }
    commit_fetch();
  };
  bool no_room = false;
  uint32_t other_steps = 0;  // a bit for each class with a step other than +1 and -1
  unsigned buffer = 0;
  fetch(begin, buffer);
  for (uint64_t step = begin; step < end; step += Step::kElements, buffer ^= 1) {
    fetch(step + Step::kElements, buffer ^ 1);
    await_fetch<1>();
    const uint32_t there = uint32_t(min(end - step, uint64_t{Step::kElements}));
    uint32_t groups[Step::kGroups];
    count_groups<T, Step>(memory.old_rows[buffer], there, keys, memory.scan, groups);
    uint32_t mask = changed_in_row<T, kKind>(memory, buffer, there);
    const StepTotals totals = finish_scan<Step>(groups, &memory.scan);
    // Changes in order of position, then one to a lane.
    uint32_t total;
    uint32_t to = count_before<6>(__popc(mask), &total);
    for (; mask != 0; mask &= mask - 1) {
      memory.waiting[to++] = uint16_t(lane * Step::kLaneElements + __ffs(int(mask)) - 1);
    }
    __syncwarp();
    for (uint32_t from = 0; from < total; from += kWarp) {
      const bool own = from + lane < total;
      unsigned c = kMaxClasses;
      uint32_t in_step = 0;
      T old_value = 0;
      if (own) {
        in_step = memory.waiting[from + lane];
        old_value = memory.old_rows[buffer].template element<T>(in_step);
        c = keys.class_of_key[key_of(keys, old_value)];
      }
      const uint32_t same = __match_any_sync(kAllLanes, c);
      bool first = false;
      if (own) {
        const uint32_t at = array.room[c] + memory.counts[c] + lanes_before(same);
        first = lanes_before(same) == 0;
        const T change = T(memory.new_element(buffer, in_step) - old_value);
        if ((T(change + 1) & T(~T{2})) != 0) other_steps |= 1U << c;
        if (at >= array.room[c + 1]) {
          no_room = true;
        } else {
          work.ranks[block.first_change + at] =
              memory.seen[c] + rank_in_step<T, kKind>(memory, keys, buffer, in_step, c);
          static_cast<T*>(work.old_values)[block.first_change + at] = old_value;
          static_cast<T*>(work.steps)[block.first_change + at] = change;
        }
      }
      __syncwarp();
      if (first) memory.counts[c] += __popc(same);
      __syncwarp();
    }
    if (lane < kMaxClasses) memory.seen[lane] += totals.of_class(lane);
    __syncwarp();
  }
  other_steps = __reduce_or_sync(kAllLanes, other_steps);
  const bool any_without_room = __any_sync(kAllLanes, no_room);
  TightEncodeResult& result = work.results[index];
  const uint32_t own_count = lane < kMaxClasses ? memory.counts[lane] : 0;
  if (lane < kMaxClasses) result.count[lane] = own_count;
  const uint32_t total = __reduce_add_sync(kAllLanes, own_count);
  if (lane == 0) {
    result.unit_classes = ~other_steps & ((1U << keys.num_classes) - 1);
    result.total = total;
    result.num_bytes = 0;
    result.no_room = any_without_room ? 1 : 0;
  }
}

}  // namespace

Status collect_tight(const TightEncodeWork& work, unsigned width, NewKind kind, Stream stream) {
  if (work.num_blocks == 0) return {};
  const unsigned grid = (work.num_blocks + kWarps - 1) / kWarps;
  return with_kind(width, kind, [&]<class T, NewKind kKind>() {
    collect<T, kKind><<<grid, kThreads, 0, stream>>>(work);
    return launched("collect");
  });
}

}  // namespace deltawire::cuda
