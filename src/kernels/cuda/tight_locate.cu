// Steps 2 and 4 of decoding `tight`: a scan of the weights finds the elements that have the ranks. A
// thread block for each block, a warp of it for each class.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/staged_rows.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/tight_decode_steps.h"
#include "kernels/cuda/tight_scan.cuh"
#include "kernels/cuda/tight_symbols.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kResident = 4;                    // blocks that a multiprocessor works on
static_assert(kThreads == kMaxClasses * kWarp);
constexpr uint32_t kNoRank = ~0U;

template <class T>
using DecodeStep = StepOf<sizeof(T) <= 2   ? 64
                          : sizeof(T) == 4 ? 32
                                           : 16,
                          kThreads>;

// In shared memory, one for each thread block.
template <class T>
struct LocateMemory {
  using Step = DecodeStep<T>;
  StagedRows<T, Step::kLaneElements, kThreads> rows;
  StepScan<Step> scan;
};

// Of the last of `count` places, a power of two, whose value is not above `rank`: its number.
template <unsigned kCount, class ValueAt>
__device__ unsigned last_reached(uint32_t rank, const ValueAt& value_at) {
  unsigned found = 0;
#pragma unroll
  for (unsigned d = kCount / 2; d != 0; d /= 2) found += value_at(found + d) <= rank ? d : 0;
  return found;
}

// The number of the bit that has `rank` others below it, in eight.
__device__ unsigned bit_with_rank(uint32_t mask, uint32_t rank) {
  unsigned at = 0;
#pragma unroll
  for (unsigned d = 4; d != 0; d /= 2) {
    const uint32_t below = __popc(mask >> at & ((1U << d) - 1));
    const bool above = rank >= below;
    rank -= above ? below : 0;
    at += above ? d : 0;
  }
  return at;
}

// The element of class c that has `rank` others of its class before it among those of `warp`.
template <class T>
__device__ uint32_t locate(const LocateMemory<T>& memory, KeyBits keys, unsigned c, unsigned warp,
                           uint32_t rank) {
  using Step = DecodeStep<T>;
  const auto& scan = memory.scan;
  const unsigned first_thread = warp * kWarp;
  const unsigned owner = first_thread + last_reached<kWarp>(rank, [&](unsigned t) {
                           return scan.before_of(c, first_thread + t);
                         });
  rank -= scan.before_of(c, owner);
  const unsigned group =
      last_reached<Step::kGroups>(rank, [&](unsigned g) { return scan.earlier_of(c, owner, g); });
  rank -= scan.earlier_of(c, owner, group);
  const uint32_t first = owner * Step::kLaneElements + group * Step::kGroupElements;
  return first + bit_with_rank(class_mask<T>(memory.rows, first, keys, scan, c), rank);
}

// A class's changes, 32 at a time, the next ones on their way.
template <class T, bool kWrites>
struct Changes {
  const uint32_t* ranks;
  T* values;               // of coded classes
  const uint8_t* payload;  // of others
  uint32_t signs;
  uint32_t last;
  bool coded, wanted;  // the same in all lanes

  struct Change {
    uint32_t rank;
    T value;  // new, or 1 if it is one less than the old one
  };
  __device__ Change load(uint32_t at) const {
    Change change{kNoRank, 0};
    if (!wanted || at >= last) return change;
    change.rank = ranks[at];
    if (!kWrites) return change;
    change.value = coded ? values[at] : T(payload[(signs + at) / 8] >> (signs + at) % 8 & 1);
    return change;
  }
};

// What to do with blocks: to write the changes of all, or to find old values of coded classes.
template <class T, bool kWrites>
__global__ void __launch_bounds__(kThreads, kResident) locate_in_blocks(TightDecodeWork work) {
  using Step = DecodeStep<T>;
  extern __shared__ uint4 shared_memory[];
  LocateMemory<T>& memory = *reinterpret_cast<LocateMemory<T>*>(shared_memory);
  const TightDecodeBlock& block = work.blocks[blockIdx.x];
  if (!kWrites && block.only_units != 0) return;
  const TightDecodeArray& array = work.arrays[block.array];
  const KeyBits keys(array.keys);
  prepare_scan(array.keys, &memory.scan);
  // All threads must see the same status: others may set it at any time.
  if (__syncthreads_or(threadIdx.x == 0 && work.status->code != 0) != 0) return;

  void* const data = array.data;
  const uint64_t begin = block.first_element, end = begin + block.num_elements;
  const bool aligned = is_aligned16(data);  // blocks begin at multiples of 4,096 elements
  const auto fetch = [&](uint64_t step) {
    memory.rows.fetch(data, step, uint32_t(min(end - step, uint64_t{Step::kElements})),
                      aligned && step + Step::kElements <= end);
  };
  const unsigned c = threadIdx.x / kWarp;
  const uint32_t first = c == 0 ? 0 : block.end[c - 1];
  const bool coded = (block.unit_classes >> c & 1) == 0;
  const Changes<T, kWrites> changes{
      work.ranks + block.first_change,
      static_cast<T*>(work.values) + block.first_value - unit_changes_before(block, c),
      work.payload + block.bytes,
      kWrites ? work.streams[blockIdx.x].signs[c] - first : 0,
      block.end[c],
      coded,
      kWrites || coded};
  uint32_t at = first + lane_id();
  auto change = changes.load(at), ahead = changes.load(at + kWarp);
  uint32_t seen = 0;
  for (uint64_t step = begin; step < end; step += Step::kElements) {
    fetch(step);
    await_fetch();
    __syncthreads();
    const uint32_t count = uint32_t(min(end - step, uint64_t{Step::kElements}));
    const auto note = [&](unsigned g, const RowCounts& row) { memory.scan.note(g, row); };
    const auto& rows = memory.rows;
    const RowCounts row =
        count == Step::kElements
            ? count_row<T, Step>([&](unsigned i) { return rows.chunk(threadIdx.x, i); }, keys,
                                 memory.scan.one_hot, note)
            : count_row_in_part<T, Step>(rows, count, keys, memory.scan.one_hot, note);
    finish_scan<Step>(row, &memory.scan);
    __syncthreads();
    uint32_t first_rank[Step::kWarps], limit = seen;  // of each warp's elements
#pragma unroll
    for (unsigned w = 0; w < Step::kWarps; ++w) {
      first_rank[w] = limit;
      limit += memory.scan.total_of(c, w);
    }
    seen = limit;
    while (__any_sync(kAllLanes, change.rank < limit)) {
      if (change.rank < limit) {
        unsigned warp = 0;
        uint32_t rank = change.rank - first_rank[0];
#pragma unroll
        for (unsigned w = 1; w < Step::kWarps; ++w) {
          if (change.rank >= first_rank[w]) {
            warp = w;
            rank = change.rank - first_rank[w];
          }
        }
        const uint32_t found = locate<T>(memory, keys, c, warp, rank);
        const T old_value = rows.element(found);
        if (kWrites) {
          const T new_value = coded ? change.value : T(old_value + 1 - 2 * change.value);
          store_element<T>(data, step + found, new_value);
        } else {
          changes.values[at] = old_value;
        }
        change.rank = kNoRank;
      }
      if (__any_sync(kAllLanes, change.rank != kNoRank)) break;  // they lie further on
      at += kWarp;
      change = ahead;
      ahead = changes.load(at + kWarp);
    }
    __syncthreads();  // before the next step takes the place of this one
  }
  // Ranks that their class does not reach in this block are left over.
  const bool reached = changes.wanted || first == changes.last
                           ? change.rank == kNoRank
                           : changes.ranks[changes.last - 1] < seen;
  if (!reached) fail(work.status, PatchError::kRankNotReached, block.array, block.number);
}

constexpr unsigned kCheckThreads = 256, kInFlight = 4;

// Counts of a thread's part of a block.
struct PartCounts {
  ClassCounts sum{};
  __device__ void add(const RowCounts& row) {
    const ClassCounts own = row.widened();
    for (unsigned p = 0; p < 4; ++p) sum.pairs[p] += own.pairs[p];
  }
};

template <class T>
__device__ void count_chunk(const uint4& chunk, KeyBits keys, const uint32_t* one_hot,
                            RowCounts* row) {
  constexpr unsigned kPer = 16 / sizeof(T), kGroup = kPer < 8 ? kPer : 8;
#pragma unroll
  for (unsigned g = 0; g < kPer; g += kGroup) {
    uint32_t sum = 0;
#pragma unroll
    for (unsigned j = 0; j < kGroup; ++j) sum += one_hot_of<T>(chunk, g + j, keys, one_hot);
    row->add(sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kCheckThreads) check_blocks(TightDecodeWork work) {
  __shared__ uint32_t one_hot[256], totals[kMaxClasses];
  const TightDecodeBlock& block = work.blocks[blockIdx.x];
  if (block.only_units == 0) return;
  const TightDecodeArray& array = work.arrays[block.array];
  const KeyBits keys(array.keys);
  for (unsigned key = threadIdx.x; key < 256; key += kCheckThreads) {
    one_hot[key] = 1U << (4 * array.keys.class_of_key[key]);
  }
  if (threadIdx.x < kMaxClasses) totals[threadIdx.x] = 0;
  if (__syncthreads_or(threadIdx.x == 0 && work.status->code != 0) != 0) return;

  constexpr uint32_t kPer = 16 / sizeof(T), kRound = kCheckThreads * kInFlight;
  const T* const from = static_cast<const T*>(array.data) + block.first_element;
  const uint4* const chunks = reinterpret_cast<const uint4*>(from);
  const uint32_t num_chunks = is_aligned16(from) ? block.num_elements / kPer / kRound * kRound : 0;
  PartCounts part;
  for (uint32_t base = threadIdx.x; base < num_chunks; base += kRound) {
    uint4 bits[kInFlight];
#pragma unroll
    for (unsigned k = 0; k < kInFlight; ++k) bits[k] = __ldcs(chunks + base + k * kCheckThreads);
    RowCounts row;
#pragma unroll
    for (unsigned k = 0; k < kInFlight; ++k) count_chunk<T>(bits[k], keys, one_hot, &row);
    part.add(row);
  }
  for (uint32_t i = num_chunks * kPer + threadIdx.x; i < block.num_elements; i += kCheckThreads) {
    RowCounts row;
    row.add(one_hot[keys.of(load_element<T>(array.data, block.first_element + i))]);
    part.add(row);
  }
#pragma unroll
  for (unsigned c = 0; c < kMaxClasses; ++c) {
    const uint32_t pair = part.sum.pairs[ClassCounts::pair_of(c)];
    const uint32_t own = ClassCounts::half_of(c) == 0 ? pair & 0xffff : pair >> 16;
    const uint32_t of_warp = __reduce_add_sync(kAllLanes, own);
    if (lane_id() == 0) atomicAdd(&totals[c], of_warp);
  }
  __syncthreads();
  if (threadIdx.x >= kMaxClasses) return;
  const unsigned c = threadIdx.x;
  const uint32_t first = c == 0 ? 0 : block.end[c - 1], last = block.end[c];
  if (first < last && work.ranks[block.first_change + last - 1] >= totals[c]) {
    fail(work.status, PatchError::kRankNotReached, block.array, block.number);
  }
}

template <class T, bool kWrites>
Status locate(const TightDecodeWork& work, Stream stream) {
  constexpr size_t kShared = sizeof(LocateMemory<T>);
  DW_CUDA(cudaFuncSetAttribute(locate_in_blocks<T, kWrites>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, int(kShared)));
  locate_in_blocks<T, kWrites><<<work.num_blocks, kThreads, kShared, stream>>>(work);
  return launched("locate_in_blocks");
}

}  // namespace

Status find_values(const TightDecodeWork& work, unsigned width, Stream stream) {
  return with_width(width, [&]<class T>() { return locate<T, false>(work, stream); });
}
Status write_changes(const TightDecodeWork& work, unsigned width, Stream stream) {
  return with_width(width, [&]<class T>() { return locate<T, true>(work, stream); });
}

Status check_ranks(const TightDecodeWork& work, unsigned width, Stream stream) {
  return with_width(width, [&]<class T>() {
    check_blocks<T><<<work.num_blocks, kCheckThreads, 0, stream>>>(work);
    return launched("check_blocks");
  });
}

}  // namespace deltawire::cuda
