// What `tight` needs on a device, both ways: code tables, and the models of the arrays of a batch.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/sum_math.h"
#include "kernels/tight_math.h"

namespace deltawire::cuda {

// How to see the elements of an array through its model.
struct TightKeys {
  uint8_t key_shift, key_mask;
  uint8_t num_classes;
  uint8_t class_of_key[256];
  uint16_t border[kMaxClasses + 1];  // the lowest key of each class; 256 for classes that are not
};

// Where the elements of a block are in their array: in order from `begin` on, or in rows, the tile
// of a matrix. They count row by row.
struct BlockPlace {
  uint64_t begin = 0;
  // Elements of a row, at most 2^kMaxColumnsLog2, and others up to the next one; 0: in order.
  uint32_t columns = 0, skip = 0;
  uint32_t reciprocal = 0;  // 2^31 / columns, rounded up

  static constexpr unsigned kMaxColumnsLog2 = 9;
  static constexpr BlockPlace of_rows(uint64_t begin, uint32_t columns, uint32_t skip) {
    return {begin, columns, skip, uint32_t(((uint64_t{1} << 31) + columns - 1) / columns)};
  }

  constexpr bool in_order() const { return skip == 0; }
  // The row of element i: exact, since i x columns is under 2^31.
  constexpr uint32_t row(uint32_t i) const { return uint32_t(uint64_t{i} * reciprocal >> 31); }
  constexpr uint64_t operator()(uint32_t i) const { return begin + i + uint64_t{row(i)} * skip; }

  // How far element i + count is from element i, if that is the same for every i: rows divide
  // `count`, as those of whole tiles do. Else 0.
  constexpr uint64_t hop(uint32_t count) const {
    if (in_order()) return count;
    const uint32_t rows = row(count);
    return rows * columns == count ? count + uint64_t{rows} * skip : 0;
  }

  // The most bytes, a power of two and no more than a segment of sum128, of which every row begins
  // at a multiple, counted in the array, and has a multiple.
  template <class T>
  constexpr uint32_t piece_bytes() const {
    const uint32_t bits = (uint32_t(begin) | columns | skip) * sizeof(T) | sum128::kSegmentBytes;
    return bits & (~bits + 1);
  }
};
static_assert(tight::kMaxBlockLog2 + BlockPlace::kMaxColumnsLog2 < 31);

// A code table as the host gives it.
struct TableFrequencies {
  uint16_t frequency[kMaxSymbols];
  uint32_t num_symbols;
};

}  // namespace deltawire::cuda
