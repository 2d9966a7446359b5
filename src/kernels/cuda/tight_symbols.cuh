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
__device__ inline uint32_t word_before(const uint8_t* words) {
  return uint32_t(words[-1]) << 8 | words[-2];
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
__device__ inline bool streams_meet(const uint8_t* begin, uint32_t at_bit, const uint8_t* words,
                                    uint32_t state, uint32_t other) {
  return words == begin + (at_bit + 7) / 8 && bits_at(begin, at_bit, -at_bit & 7) == 0 &&
         state == kRansLow && other == kRansLow;
}

}  // namespace deltawire::cuda
