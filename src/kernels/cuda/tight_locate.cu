// Steps 2 and 4 of decoding `tight`: a scan of the weights finds the elements that have the ranks.
// A thread block for each block.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/team.cuh"
#include "kernels/cuda/tight_block_scan.cuh"
#include "kernels/cuda/tight_decode_steps.h"
#include "kernels/cuda/tight_symbols.cuh"
#include "kernels/cuda/widths.h"
#include "kernels/cuda/written_sums.cuh"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = kScanThreads;
static_assert(kThreads == kMaxClasses * kWarp);
constexpr uint32_t kNoRank = ~0U;

// Of elements of one or two bytes, kNarrow to a thread; kBlocks that a multiprocessor works on.
template <unsigned kNarrow, unsigned kBlocks>
struct Shape {
  static constexpr unsigned kResident = kBlocks;
  template <class T>
  using Step = StepOf<sizeof(T) <= 2   ? kNarrow
                      : sizeof(T) == 4 ? kNarrow / 2
                                       : kNarrow / 4,
                      kThreads>;
};
using FindShape = Shape<32, 5>;
using WriteShape = Shape<32, 5>;

// False for all threads if there is nothing to do: something is wrong already.
template <class T, class Step>
__device__ bool begin_scan(const TightDecodeWork& work, const TightDecodeArray& array,
                           LocateMemory<T, Step>* memory) {
  prepare_scan(array.keys, &memory->scan);
  // All must see the same status: others may set it at any time.
  return __syncthreads_or(threadIdx.x == 0 && work.status->code != 0) == 0;
}

__device__ uint32_t first_change(const TightDecodeBlock& block, unsigned c) {
  return c == 0 ? 0 : block.end[c - 1];
}
template <class T>
__device__ T* values_of_class(const TightDecodeWork& work, const TightDecodeBlock& block,
                              unsigned c) {
  return static_cast<T*>(work.values) + block.first_value - unit_changes_before(block, c);
}

// What a thread looks after: changes `at`, `at + stride` ... below `last`, all of one class.
struct Share {
  unsigned of_class = 0;
  uint32_t at = 0, stride = 1, last = 0;
};

// Shares out the changes of those classes that take(c) says. Each gets threads in proportion to its
// changes, one at least.
template <class Take>
__device__ Share share_out(const TightDecodeBlock& block, const Take& take) {
  uint32_t num_taken = 0, all = 0;
  const auto for_each_taken = [&](const auto& call) {
    for (unsigned c = 0; c < kMaxClasses; ++c) {
      const uint32_t count = block.end[c] - first_change(block, c);
      if (count != 0 && take(c)) call(c, count);
    }
  };
  for_each_taken([&](unsigned, uint32_t count) {
    ++num_taken;
    all += count;
  });
  Share share;
  uint32_t number = 0, before = 0, begin = 0;
  for_each_taken([&](unsigned c, uint32_t count) {
    before += count;
    const uint32_t end = ++number + (kThreads - num_taken) * before / all;
    if (begin <= threadIdx.x && threadIdx.x < end) {
      share = {c, first_change(block, c) + threadIdx.x - begin, end - begin, block.end[c]};
    }
    begin = end;
  });
  return share;
}

// A change: of a coded class that has been found a position and the new value, of others a rank and
// perhaps the sign.
template <class T>
struct Change {
  uint32_t place = kNoRank;
  T value = 0;
};

// Goes through the block's weights and through the thread's share beside them. load(i) gives change
// i, step() comes once for each step of the scan, and take(i, change, of_warp) for each change, in
// the step that has its place: a position, or else a rank. done() comes at the end of each step.
// False: a rank that its class does not reach in this block.
template <class T, class Step, class Load, class OnStep, class Take, class Done>
__device__ bool walk(BlockScan<T, Step>* scan, Share share, bool positions, const Load& load,
                     const OnStep& step, const Take& take, const Done& done) {
  const auto load_own = [&](uint32_t at) { return at < share.last ? load(at) : Change<T>{}; };
  Change<T> change = load_own(share.at);
  Change<T> ahead = load_own(share.at + share.stride);  // on its way
  uint32_t seen = 0;
  for (; !scan->at_end(); scan->go_on()) {
    scan->count();
    step();
    uint32_t of_warp[Step::kWarps];
    seen = scan->first_ranks(share.of_class, seen, of_warp);
    const uint32_t limit = positions ? scan->step() + scan->step_size() : seen;
    while (change.place < limit) {
      take(share.at, change, of_warp);
      share.at += share.stride;
      change = ahead;
      ahead = load_own(share.at + share.stride);
    }
    done();
  }
  return change.place == kNoRank;
}

// Old values of coded classes, and where they are.
template <class T>
__global__ void __launch_bounds__(kThreads, FindShape::kResident)
    find_in_blocks(TightDecodeWork work) {
  using Step = FindShape::Step<T>;
  extern __shared__ uint4 shared_memory[];
  auto& memory = *reinterpret_cast<LocateMemory<T, Step>*>(shared_memory);
  const TightDecodeBlock& block = work.blocks[blockIdx.x];
  if (block.only_units != 0) return;
  const TightDecodeArray& array = work.arrays[block.array];
  if (!begin_scan(work, array, &memory)) return;

  const Share share = share_out(block, [&](unsigned c) { return is_coded(block, c); });
  uint32_t* const ranks = work.ranks + block.first_change;
  T* const values = values_of_class<T>(work, block, share.of_class);
  // Of other classes it only matters whether they have as many elements as their ranks say. Some
  // lanes of each warp add up those of a class.
  const unsigned counted_class = threadIdx.x / kWarp, counted_warp = lane_id() % Step::kWarps;
  uint32_t counted = 0;
  BlockScan<T, Step> scan(array, block, &memory);
  bool reached = walk(
      &scan, share, false, [&](uint32_t at) { return Change<T>{ranks[at]}; },
      [&] { counted += memory.scan.total_of(counted_class, counted_warp); },
      [&](uint32_t at, const Change<T>& change, const uint32_t* of_warp) {
        const uint32_t found = scan.locate(share.of_class, change.place, of_warp);
        values[at] = memory.rows.element(found);
        ranks[at] = scan.step() + found;
      },
      [] {});
  static_assert(Step::kWarps == kMaxClasses);
  const uint32_t all = Team<Step::kWarps>::sum_through(counted);
  const uint32_t first = first_change(block, counted_class), end = block.end[counted_class];
  if (lane_id() == Step::kWarps - 1 && first < end && !is_coded(block, counted_class)) {
    reached = reached && ranks[end - 1] < all;
  }
  if (!reached) fail(work.status, PatchError::kRankNotReached, block.array, block.number);
}

enum class Changes : uint8_t { kWrite, kWriteAndSum, kList };

// Sums take registers.
template <class T, Changes kDo>
__global__ void __launch_bounds__(kThreads,
                                  WriteShape::kResident - (kDo == Changes::kWriteAndSum ? 1 : 0))
    write_blocks(TightDecodeWork work) {
  constexpr bool kSums = kDo == Changes::kWriteAndSum;
  using Step = WriteShape::Step<T>;
  extern __shared__ uint4 shared_memory[];
  auto& memory = *reinterpret_cast<LocateMemory<T, Step>*>(shared_memory);
  const TightDecodeBlock& block = work.blocks[blockIdx.x];
  const TightDecodeArray& array = work.arrays[block.array];
  if (!begin_scan(work, array, &memory)) return;

  void* const data = block.data;
  const BlockPlace place = block.place;
  const Share share = share_out(block, [](unsigned) { return true; });
  const unsigned c = share.of_class;
  const bool coded = is_coded(block, c);
  uint32_t* const places = work.ranks + block.first_change;
  const T* const values = values_of_class<T>(work, block, c);
  const uint8_t* const payload = work.payload + block.bytes;
  const uint32_t signs = work.streams[blockIdx.x].signs[c] - first_change(block, c);
  const auto load = [&](uint32_t at) -> Change<T> {
    return {places[at], coded ? values[at] : T(payload[(signs + at) / 8] >> (signs + at) % 8 & 1)};
  };
  BlockScan<T, Step> scan(array, block, &memory);
  const auto put = [&](uint32_t at, uint32_t element, T value) {
    if constexpr (kDo == Changes::kList) {
      places[at] = uint32_t(place(element));  // has been read, by this thread alone
      static_cast<T*>(work.listed)[block.first_change + at] = value;
    } else {
      store_element<T>(data, place(element), value);
    }
  };
  const auto write = [&](uint32_t at, const Change<T>& change, const uint32_t* of_warp) {
    if (coded) {
      put(at, change.place, change.value);
    } else {
      const uint32_t found = scan.locate(c, change.place, of_warp);
      const T old_value = memory.rows.element(found);
      put(at, scan.step() + found, T(old_value + 1 - 2 * change.value));
    }
  };
  SumLanes lanes;
  const auto done = [&] {
    if constexpr (!kSums) return;
    __syncthreads();  // all of the step has been written
    add_written<T, Step>(data, place, scan.step(), scan.step_size(), &lanes);
  };
  const auto nothing = [] {};
  if (!walk(&scan, share, coded, load, nothing, write, done)) {
    fail(work.status, PatchError::kRankNotReached, block.array, block.number);
  }
  if constexpr (kSums) lanes.add_warp_to(work.sums + 2 * block.array);
}

template <class T, class Step>
Status launch(void (*kernel)(TightDecodeWork), const char* name, const TightDecodeWork& work,
              Stream stream) {
  constexpr size_t kShared = sizeof(LocateMemory<T, Step>);
  DW_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kShared)));
  kernel<<<work.num_blocks, kThreads, kShared, stream>>>(work);
  return launched(name);
}

}  // namespace

Status find_values(const TightDecodeWork& work, unsigned width, Stream stream) {
  return with_width(width, [&]<class T>() {
    return launch<T, FindShape::Step<T>>(find_in_blocks<T>, "find_in_blocks", work, stream);
  });
}

Status write_changes(const TightDecodeWork& work, unsigned width, Stream stream) {
  return with_width(width, [&]<class T>() {
    const auto kernel = work.sums == nullptr ? write_blocks<T, Changes::kWrite>
                                             : write_blocks<T, Changes::kWriteAndSum>;
    return launch<T, WriteShape::Step<T>>(kernel, "write_blocks", work, stream);
  });
}

Status list_changes(const TightDecodeWork& work, unsigned width, Stream stream) {
  return with_width(width, [&]<class T>() {
    return launch<T, WriteShape::Step<T>>(write_blocks<T, Changes::kList>, "write_blocks", work,
                                          stream);
  });
}

}  // namespace deltawire::cuda
