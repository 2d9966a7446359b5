// FP8 blocks of a matrix that nobody has made: the old elements, and which of them have changed.
// What has not is read from the old ones; the few others are made of their weights.
#pragma once

#include <cstdint>

#include "kernels/fp8_math.h"

namespace deltawire::cuda {

// All on the device, this too. Kernels want it to lie at a multiple of sixteen bytes, as arrays do.
struct MarkedFp8 {
  const uint32_t* changed;  // a bit for each element, in the order of rows
  const void* weights;
  const float* scales;
  uint64_t columns;  // a multiple of 32
  uint64_t block_rows, block_columns, columns_of_blocks;
  WideFloat from;
};
static_assert(sizeof(MarkedFp8) % 16 == 0);

}  // namespace deltawire::cuda
