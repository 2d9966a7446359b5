// How a decoder reads the two streams of a `tight` block: symbols from the back, bits from the
// front.
#pragma once

#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/tight_decode.h"

namespace deltawire::cuda {

// One state's step. The caller refills it where it has fallen below its range.
__device__ inline uint32_t decode_symbol(const DecodeTable& table, uint32_t* state) {
  const uint32_t slot = *state & (kProbabilityOne - 1);
  const uint32_t symbol = table.symbol_of_slot[slot];
  const uint32_t range = table.range[symbol];
  *state = (range & 0xffff) * (*state >> kProbabilityBits) + slot - (range >> 16);
  return symbol;
}
__device__ inline uint32_t decode_symbol(const GapTable& table, uint32_t* state) {
  const uint32_t slot = *state & (kProbabilityOne - 1);
  uint32_t entry = table.buckets[slot >> GapTable::kBucketBits];
  uint32_t place = slot - GapTable::start(entry);
  while (place > GapTable::frequency_less_one(entry)) {
    entry = table.symbols[GapTable::symbol(entry) + 1];
    place = slot - GapTable::start(entry);
  }
  const uint32_t above = *state >> kProbabilityBits;
  *state = GapTable::frequency_less_one(entry) * above + above + place;
  return GapTable::symbol(entry);
}

// A block's words, from the last to the first. Those that a step may need were asked for a step
// before.
class WordReader {
 public:
  __device__ explicit WordReader(const uint8_t* at)
      : base_(reinterpret_cast<const uint32_t*>(at - (reinterpret_cast<uintptr_t>(at) & 3))),
        at_(int(reinterpret_cast<uintptr_t>(at) & 3)) {
    fetch();
  }

  // The next two, the first one above. Looks at the eight bytes before the next ones.
  __device__ uint32_t two() {
    const uint32_t low = __funnelshift_r(words_[0], words_[1], shift_);
    const uint32_t high = __funnelshift_r(words_[1], words_[2], shift_);
    const uint32_t next = __funnelshift_lc(low, high, 16 * taken_);
    fetch();
    return next;
  }
  // Of these, `count` were needed.
  __device__ void take(unsigned count) {
    at_ -= int(2 * count);
    taken_ = count;
  }
  __device__ const uint8_t* at() const { return reinterpret_cast<const uint8_t*>(base_) + at_; }

 private:
  __device__ void fetch() {
    const int from = at_ - 8;
    const uint32_t* const at = base_ + (from >> 2);
    for (unsigned i = 0; i < 3; ++i) words_[i] = at[i];
    shift_ = uint32_t(from & 3) * 8;
    taken_ = 0;
  }

  const uint32_t* base_;
  int at_;  // in bytes, downwards
  uint32_t words_[3];
  uint32_t shift_;
  unsigned taken_;  // since they were fetched
};

// A block's coder: two states that take turns. One lane has both: what the two next symbols are
// does not depend on each other, so that waits for them overlap, but which words they take does.
struct Coder {
  WordReader words;
  uint32_t next, other;  // the state of the next symbol, and of the one after it

  // After both states have taken their step.
  __device__ void refill_both(uint32_t two) {
    const bool first = next < kRansLow, second = other < kRansLow;
    if (first) next = __funnelshift_l(two, next, 16);
    const uint32_t rest = first ? two << 16 : two;
    if (second) other = __funnelshift_l(rest, other, 16);
    words.take((first ? 1 : 0) + (second ? 1 : 0));
  }
  // After the next one has: it is the other one's turn.
  __device__ void refill_next(uint32_t two) {
    const bool low = next < kRansLow;
    const uint32_t state = low ? __funnelshift_l(two, next, 16) : next;
    words.take(low ? 1 : 0);
    next = other;
    other = state;
  }
  // A single symbol.
  template <class Table>
  __device__ uint32_t decode(const Table& table) {
    const uint32_t two = words.two();
    const uint32_t symbol = decode_symbol(table, &next);
    refill_next(two);
    return symbol;
  }
};

// Whether some of a class's steps are other than +1 or -1.
__device__ inline bool is_coded(const TightDecodeBlock& block, unsigned c) {
  return (block.unit_classes >> c & 1) == 0 && block.end[c] != (c == 0 ? 0 : block.end[c - 1]);
}

// How many changes of classes before c have no value of their own: only signs.
__device__ inline uint32_t unit_changes_before(const TightDecodeBlock& block, unsigned c) {
  uint32_t count = 0;
  for (unsigned k = 0; k < c; ++k) {
    if ((block.unit_classes >> k & 1) != 0) count += block.end[k] - (k == 0 ? 0 : block.end[k - 1]);
  }
  return count;
}

// `count` bits, up to 32, from bit `at` on. Looks at up to seven bytes more.
__device__ inline uint32_t bits_at(const uint8_t* begin, uint32_t at, unsigned count) {
  return DeviceBitReader(begin, at).get(count);
}

// Whether a block ends as an encoder ends it: both states where they began, both streams at the
// same byte, zero bits up to it.
__device__ inline bool streams_meet(const uint8_t* begin, uint32_t at_bit, const Coder& coder) {
  return coder.words.at() == begin + (at_bit + 7) / 8 && bits_at(begin, at_bit, -at_bit & 7) == 0 &&
         coder.next == kRansLow && coder.other == kRansLow;
}

}  // namespace deltawire::cuda
