// Step 4 of decoding `tight`: new values to where they belong, in blocks with coded classes.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/tight_decode_steps.h"
#include "kernels/cuda/tight_symbols.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 128, kInFlight = 4;

// Changes lie class by class. To have writes that are close together meet in the cache, a block is
// written segment by segment, all classes of each.
constexpr uint32_t kSegment = 1U << 15;
constexpr unsigned kMaxSegments = (1U << tight::kMaxBlockLog2) / kSegment;

// In shared memory, one for each thread block.
struct ScatterMemory {
  uint32_t bound[kMaxSegments + 1][kMaxClasses];  // the first change at or after a segment's begin
  uint32_t signs[kMaxClasses];                    // of a class that is not coded: bit of change 0
  uint32_t unit_before[kMaxClasses];
};

// The first of `positions`, an ascending list from `from` to `end`, that is not below `limit`.
__device__ uint32_t lower_bound(const uint32_t* positions, uint32_t from, uint32_t end,
                                uint32_t limit) {
  while (from < end) {
    const uint32_t middle = from + (end - from) / 2;
    if (positions[middle] < limit) {
      from = middle + 1;
    } else {
      end = middle;
    }
  }
  return from;
}

template <class T>
__global__ void __launch_bounds__(kThreads) scatter_blocks(TightDecodeWork work) {
  __shared__ ScatterMemory memory;
  const TightDecodeBlock& block = work.blocks[blockIdx.x];
  if (block.only_units != 0) return;
  // All threads must see the same status: others may set it at any time.
  if (__syncthreads_or(threadIdx.x == 0 && work.status->code != 0) != 0) return;
  const uint32_t* const positions = work.positions + block.first_change;
  const uint32_t num_segments = (block.num_elements + kSegment - 1) / kSegment;
  for (uint32_t k = threadIdx.x; k < (num_segments + 1) * kMaxClasses; k += kThreads) {
    const uint32_t segment = k / kMaxClasses, c = k % kMaxClasses;
    const uint32_t first = c == 0 ? 0 : block.end[c - 1], last = block.end[c];
    memory.bound[segment][c] = segment == 0 ? first
                               : segment == num_segments
                                   ? last
                                   : lower_bound(positions, first, last, segment * kSegment);
  }
  if (threadIdx.x < kMaxClasses) {
    const unsigned c = threadIdx.x;
    memory.signs[c] = work.streams[blockIdx.x].signs[c] - (c == 0 ? 0 : block.end[c - 1]);
    memory.unit_before[c] = unit_changes_before(block, c);
  }
  __syncthreads();

  const T* const values = static_cast<const T*>(work.values) + block.first_value;
  const uint8_t* const payload = work.payload + block.bytes;
  void* const data = work.arrays[block.array].data;
  const uint64_t begin = block.first_element;
  const uint32_t unit_classes = block.unit_classes;
  for (uint32_t segment = 0; segment < num_segments; ++segment) {
    const uint32_t* const from = memory.bound[segment];
    const uint32_t* const to = memory.bound[segment + 1];
    uint32_t total = 0;
    for (unsigned c = 0; c < kMaxClasses; ++c) total += to[c] - from[c];
    for (uint32_t base = threadIdx.x; base < total; base += kThreads * kInFlight) {
      // Some at a time, so that their waits overlap.
      unsigned owner[kInFlight];
      uint32_t at[kInFlight], position[kInFlight];
      T value[kInFlight];
#pragma unroll
      for (unsigned k = 0; k < kInFlight; ++k) {
        uint32_t rest = base + k * kThreads;
        owner[k] = kMaxClasses;  // none
        if (rest >= total) continue;
        unsigned c = 0;
        for (uint32_t size; rest >= (size = to[c] - from[c]); ++c) rest -= size;
        owner[k] = c;
        at[k] = from[c] + rest;
        position[k] = positions[at[k]];
      }
#pragma unroll
      for (unsigned k = 0; k < kInFlight; ++k) {
        const unsigned c = owner[k];
        if (c == kMaxClasses) continue;
        if ((unit_classes >> c & 1) == 0) {
          value[k] = values[at[k] - memory.unit_before[c]];
        } else {
          const uint32_t bit = memory.signs[c] + at[k];
          const uint32_t sign = payload[bit / 8] >> bit % 8 & 1;
          value[k] = T(load_element<T>(data, begin + position[k]) + 1 - 2 * sign);
        }
      }
#pragma unroll
      for (unsigned k = 0; k < kInFlight; ++k) {
        if (owner[k] != kMaxClasses) store_element<T>(data, begin + position[k], value[k]);
      }
    }
  }
}

}  // namespace

Status write_values(const TightDecodeWork& work, unsigned width, Stream stream) {
  return with_width(width, [&]<class T>() {
    scatter_blocks<T><<<work.num_blocks, kThreads, 0, stream>>>(work);
    return launched("scatter_blocks");
  });
}

}  // namespace deltawire::cuda
