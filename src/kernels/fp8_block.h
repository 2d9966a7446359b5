// FP8 blocks of a matrix: scales first, which take one look at all of it, then any of its elements.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/fp8_math.h"

namespace deltawire::fp8 {

// Row-major, at any address. Blocks are cut short by the matrix' end.
struct Matrix {
  const void* weights = nullptr;
  WideFloat from = WideFloat::kBf16;
  uint64_t rows = 0, columns = 0;
  uint64_t block_rows = 128, block_columns = 128;  // neither is 0
  bool power_of_two = false;                       // scales are rounded up to one (UE8M0)

  uint64_t rows_of_blocks() const { return num_blocks(rows, block_rows); }
  uint64_t columns_of_blocks() const { return num_blocks(columns, block_columns); }
  // A block may be as large as a number can be.
  static uint64_t num_blocks(uint64_t size, uint64_t block) {
    return size / block + (size % block != 0);
  }
  uint64_t width() const { return from == WideFloat::kBf16 ? 2 : 4; }
  // Whether eight elements, which a digest takes for a word, are always of one block.
  bool has_whole_words() const { return columns % 8 == 0 && block_columns % 8 == 0; }
};

// The scales of one row of blocks, columns_of_blocks() of them. False if some weight is a NaN or
// infinite once it is rounded: the scales are not to be used then.
bool scales(const Matrix& matrix, uint64_t row_of_blocks, float* out) noexcept;

// E4M3 of `out.size()` elements from `first` on, in the order of rows. `scales` has all of them.
void elements(const Matrix& matrix, const float* scales, uint64_t first,
              std::span<uint8_t> out) noexcept;

}  // namespace deltawire::fp8
