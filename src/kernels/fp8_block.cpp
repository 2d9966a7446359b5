#include "kernels/fp8_block.h"

#include <algorithm>
#include <bit>

#include "kernels/kernels.h"

namespace deltawire::fp8 {
namespace {

// Rounding keeps the order: the largest is rounded, not all of them.
uint32_t as_f32(WideFloat from, uint32_t bits) {
  if (from == WideFloat::kBf16) return bits << 16;
  return from == WideFloat::kF32 ? bits : bf16_of_f32(bits) << 16;
}

const uint8_t* at(const Matrix& matrix, uint64_t element) {
  return static_cast<const uint8_t*>(matrix.weights) + element * matrix.width();
}

}  // namespace

bool scales(const Matrix& matrix, uint64_t row_of_blocks, float* out) noexcept {
  const auto largest = kernels().largest[matrix.from == WideFloat::kBf16 ? 0 : 1];
  const uint64_t begin = row_of_blocks * matrix.block_rows;
  const uint64_t end = std::min(matrix.rows, begin + matrix.block_rows);
  const uint64_t blocks = matrix.columns_of_blocks();
  // Row after row, as memory has them; `out` holds the bits of what was found so far.
  for (uint64_t row = begin; row < end; ++row) {
    for (uint64_t block = 0; block < blocks; ++block) {
      const uint64_t column = block * matrix.block_columns;
      const uint64_t count = std::min(matrix.block_columns, matrix.columns - column);
      const uint32_t found = largest(at(matrix, row * matrix.columns + column), size_t(count));
      const uint32_t before = row == begin ? 0 : std::bit_cast<uint32_t>(out[block]);
      out[block] = std::bit_cast<float>(std::max(found, before));
    }
  }
  bool bounded = true;
  for (uint64_t block = 0; block < blocks; ++block) {
    const uint32_t amax = as_f32(matrix.from, std::bit_cast<uint32_t>(out[block]));
    bounded = bounded && amax < kInfinity;
    out[block] = scale_of(amax, matrix.power_of_two);
  }
  return bounded;
}

void elements(const Matrix& matrix, const float* scales, uint64_t first,
              std::span<uint8_t> out) noexcept {
  const auto to_e4m3 = kernels().to_e4m3[size_t(matrix.from)];
  const uint64_t blocks = matrix.columns_of_blocks();
  for (uint64_t done = 0; done < out.size();) {
    const uint64_t element = first + done;
    const uint64_t row = element / matrix.columns, column = element % matrix.columns;
    const uint64_t block = column / matrix.block_columns;
    const uint64_t end = std::min(matrix.columns, (block + 1) * matrix.block_columns);
    const size_t count = size_t(std::min<uint64_t>(end - column, out.size() - done));
    const float scale = scales[row / matrix.block_rows * blocks + block];
    to_e4m3(at(matrix, element), count, inverse_of(scale), out.data() + done);
    done += count;
  }
}

}  // namespace deltawire::fp8
