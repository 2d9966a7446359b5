// The class scan of `tight`, a step of some elements at a time: it says how many elements of each
// class lie before each thread's, so that ranks and positions can be found. A thread block for each
// block of a payload.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/tight.h"

namespace deltawire::cuda {

// How a step is shared out: so many neighbours to a thread, in groups of eight.
template <unsigned kLane, unsigned kBlockThreads>
struct StepOf {
  static constexpr unsigned kThreads = kBlockThreads, kWarps = kThreads / kWarp;
  static constexpr unsigned kLaneElements = kLane, kElements = kThreads * kLane;
  static constexpr unsigned kGroupElements = 8, kGroups = kLane / kGroupElements;
};

// Where a key is in its element; in registers.
struct KeyBits {
  uint32_t shift, mask;
  __device__ explicit KeyBits(const TightKeys& keys) : shift(keys.key_shift), mask(keys.key_mask) {}

  template <class T>
  __device__ uint32_t of(T value) const {
    return uint32_t(value >> shift) & mask;
  }
};

// Counts of the eight classes, two to a word: classes (0, 4) (2, 6) (1, 5) (3, 7).
struct ClassCounts {
  uint32_t pairs[4];
  static __device__ unsigned pair_of(unsigned c) { return (c & 1) << 1 | (c >> 1 & 1); }
  static __device__ unsigned half_of(unsigned c) { return c >> 2; }
};

// A thread's row, counted.
struct RowCounts {
  uint32_t even = 0, odd = 0;  // a byte for each class

  __device__ void add(uint32_t group) {
    even += group & 0x0f0f0f0fU;
    odd += group >> 4 & 0x0f0f0f0fU;
  }
  __device__ ClassCounts widened() const {
    return {
        {even & 0x00ff00ffU, even >> 8 & 0x00ff00ffU, odd & 0x00ff00ffU, odd >> 8 & 0x00ff00ffU}};
  }
};

// In shared memory, one for each thread block.
template <class Step>
struct StepScan {
  uint32_t one_hot[256];            // 1 << 4 class, by key
  uint32_t reach[kMaxClasses + 1];  // for class_mask()
  // Of a thread's elements, those in groups before this one: a byte for each class, those of even
  // classes in one word and those of odd ones in the other. None lie before the first.
  static constexpr unsigned kNoted = Step::kGroups > 1 ? Step::kGroups - 1 : 1;
  uint32_t earlier[kNoted][2][Step::kThreads];
  uint32_t before[4][Step::kThreads];  // of a warp's elements, those of threads before this one
  uint32_t totals[Step::kWarps][4];    // of each warp's elements

  __device__ void note(unsigned group, const RowCounts& row) {
    if (group == 0) return;
    earlier[group - 1][0][threadIdx.x] = row.even;
    earlier[group - 1][1][threadIdx.x] = row.odd;
  }
  __device__ uint32_t earlier_of(unsigned c, unsigned thread, unsigned group) const {
    if (group == 0) return 0;
    return reinterpret_cast<const uint8_t*>(&earlier[group - 1][c & 1][thread])[c >> 1];
  }
  __device__ uint32_t before_of(unsigned c, unsigned thread) const {
    return half(before[ClassCounts::pair_of(c)][thread], c);
  }
  __device__ uint32_t total_of(unsigned c, unsigned warp) const {
    return half(totals[warp][ClassCounts::pair_of(c)], c);
  }
  __device__ unsigned class_of(uint32_t key) const { return (__ffs(int(one_hot[key])) - 1) / 4; }

 private:
  static __device__ uint32_t half(const uint32_t& pair, unsigned c) {
    return reinterpret_cast<const uint16_t*>(&pair)[ClassCounts::half_of(c)];
  }
};

// To be followed by a barrier.
template <class Step>
__device__ void prepare_scan(const TightKeys& keys, StepScan<Step>* scan) {
  for (unsigned key = threadIdx.x; key < 256; key += Step::kThreads) {
    scan->one_hot[key] = 1U << (4 * keys.class_of_key[key]);
  }
  if (threadIdx.x <= kMaxClasses) {
    scan->reach[threadIdx.x] = 0x80008000U - keys.border[threadIdx.x] * 0x00800080U;
  }
}

// The class of element j of sixteen bytes, one-hot. Keys are turned to where they count words, so
// that a rotation, a mask and a load are all it takes.
template <class T>
__device__ uint32_t one_hot_of(const uint4& chunk, unsigned j, KeyBits keys,
                               const uint32_t* one_hot) {
  if constexpr (sizeof(T) == 8) {
    return one_hot[keys.of(element_of<T>(chunk, j))];
  } else {
    const unsigned byte = j * sizeof(T);
    const uint32_t word = word_of(chunk, byte / 4);
    const uint32_t turned = __funnelshift_r(word, word, byte % 4 * 8 + keys.shift - 2);
    const char* const table = reinterpret_cast<const char*>(one_hot);
    return *reinterpret_cast<const uint32_t*>(table + (turned & keys.mask << 2));
  }
}

// Counts the thread's row, calling note(group, what lies before it). load(i) gives sixteen bytes of
// the row, number i. All elements of the step are there.
template <class T, class Step, class Load, class Note>
__device__ RowCounts count_row(const Load& load, KeyBits keys, const uint32_t* one_hot,
                               const Note& note) {
  constexpr unsigned kPer = 16 / sizeof(T);
  RowCounts row;
#pragma unroll
  for (unsigned g = 0; g < Step::kGroups; ++g) {
    note(g, row);
    uint32_t sum = 0;
#pragma unroll
    for (unsigned j = 0; j < Step::kGroupElements; ++j) {
      const unsigned i = g * Step::kGroupElements + j;
      sum += one_hot_of<T>(load(i / kPer), i % kPer, keys, one_hot);
    }
    row.add(sum);
  }
  return row;
}

// The same for a step of which only `count` elements are there.
template <class T, class Step, class Rows, class Note>
__device__ RowCounts count_row_in_part(const Rows& rows, uint32_t count, KeyBits keys,
                                       const uint32_t* one_hot, const Note& note) {
  RowCounts row;
  for (unsigned g = 0; g < Step::kGroups; ++g) {
    note(g, row);
    uint32_t sum = 0;
    for (unsigned j = 0; j < Step::kGroupElements; ++j) {
      const uint32_t i = threadIdx.x * Step::kLaneElements + g * Step::kGroupElements + j;
      if (i < count) sum += one_hot[keys.of(rows.element(i))];
    }
    row.add(sum);
  }
  return row;
}

// From each thread's own counts to those before it in its warp. To be followed by a barrier.
template <class Step>
__device__ void finish_scan(const RowCounts& row, StepScan<Step>* scan) {
  const unsigned lane = lane_id();
  const ClassCounts own = row.widened();
#pragma unroll
  for (unsigned p = 0; p < 4; ++p) {
    uint32_t through = own.pairs[p];
#pragma unroll
    for (unsigned d = 1; d < kWarp; d *= 2) {
      const uint32_t left = __shfl_up_sync(kAllLanes, through, d);
      through += lane >= d ? left : 0;
    }
    scan->before[p][threadIdx.x] = through - own.pairs[p];
    if (lane == kWarp - 1) scan->totals[threadIdx.x / kWarp][p] = through;
  }
}

// Which of the eight elements from `first` on, a multiple of eight, are of class c: a bit for each.
// Beyond the end of a step that is not full, bits are anything.
template <class T, class Step, class Rows>
__device__ uint32_t class_mask(const Rows& rows, uint32_t first, KeyBits keys,
                               const StepScan<Step>& scan, unsigned c) {
  if constexpr (sizeof(T) == 2) {
    // Two at a time: keys go to bits 7 ... 14 of each half, and the top bit then tells which of
    // them reach a border.
    if (keys.shift >= 7) {
      constexpr uint32_t kTops = 0x80008000U;
      const uint32_t field = (keys.mask << 7) * 0x00010001U;
      const uint32_t low = scan.reach[c], high = scan.reach[c + 1];
      const uint4 chunk = rows.chunk(first / Step::kLaneElements,
                                     first % Step::kLaneElements / Step::kGroupElements);
      const auto inside = [&](uint32_t word) {
        const uint32_t key = word >> (keys.shift - 7) & field;
        return (key + low) & ~(key + high) & kTops;
      };
      // Lower halves end up at bits 9, 11, 13, 15, upper ones at 25, 27, 29, 31.
      const uint32_t all =
          inside(chunk.x) >> 6 | inside(chunk.y) >> 4 | inside(chunk.z) >> 2 | inside(chunk.w);
      return (all >> 9 & 0x55) | (all >> 24 & 0xaa);
    }
  }
  uint32_t mask = 0;
#pragma unroll
  for (unsigned j = 0; j < Step::kGroupElements; ++j) {
    const bool same = scan.one_hot[keys.of(rows.element(first + j))] == 1U << (4 * c);
    mask |= (same ? 1U : 0U) << j;
  }
  return mask;
}

}  // namespace deltawire::cuda
