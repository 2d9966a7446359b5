// The kernel table: every hot loop of deltawire on raw elements, once per instruction set.
// All functions are noexcept, allocate nothing and give the same result on every target, bit for
// bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/fp8_math.h"
#include "kernels/key_planes.h"

namespace deltawire {

// Work is cut into segments that stay in the first-level cache with their index.
inline constexpr size_t kStripElements = 64;
inline constexpr size_t kSegmentElements = 16384;
inline constexpr size_t kSegmentStrips = kSegmentElements / kStripElements;
inline constexpr size_t kMaxClasses = 8;
using ClassCounts = std::array<uint16_t, kMaxClasses>;

// Splits elements into classes by a key taken from their bits:
//   key = (element >> key_shift) & key_mask;  class = number of thresholds that key reaches (>=).
// For one-byte elements key_mask must not reach over the top: key_mask <= 0xff >> key_shift.
struct ClassSplit {
  uint8_t key_shift = 0;
  uint8_t key_mask = 0xff;
  uint8_t num_classes = 1;                   // 1 ... kMaxClasses
  uint8_t thresholds[kMaxClasses - 1] = {};  // num_classes - 1 of them, strictly ascending, >= 1
};

// What a scan of one segment leaves behind, so that ranks and positions can be found quickly.
struct SegmentIndex {
  // before[c][s]: elements of class c in this segment before strip s. Strips past the end of a
  // short segment hold the total: a search needs no length.
  alignas(64) uint16_t before[kMaxClasses][kSegmentStrips];
  uint16_t total[kMaxClasses];
  alignas(64) uint8_t scratch[kSegmentStrips * kStripElements];  // private to the target
};

// What a class scan covers: rows of tiles that lie side by side, `columns` elements in all,
// `tile_columns` (whole strips) in each tile but the last. In its tile each row begins a strip of
// its own; strips count through the rows of a tile, then through those of the next.
struct ScanShape {
  size_t rows = 1, columns = 0, tile_columns = 0;

  static ScanShape of_row(size_t n) { return {1, n, n == 0 ? 1 : n}; }
  size_t num_tiles() const { return (columns + tile_columns - 1) / tile_columns; }
  size_t columns_of(size_t tile) const {
    return columns - tile * tile_columns < tile_columns ? columns - tile * tile_columns
                                                        : tile_columns;
  }
  static size_t strips(size_t columns) { return (columns + kStripElements - 1) / kStripElements; }
  size_t first_strip(size_t tile) const {
    return rows * (tile < num_tiles() ? tile * strips(tile_columns) : strips(columns));
  }
  struct Strip {
    size_t tile, row, column, elements;  // the column counts from the first tile's
  };
  Strip strip(size_t number) const {
    const size_t tile = number / first_strip(1), left = number - first_strip(tile),
                 per_row = strips(columns_of(tile)), begin = left % per_row * kStripElements;
    return {tile, left / per_row, tile * tile_columns + begin,
            columns_of(tile) - begin < kStripElements ? columns_of(tile) - begin : kStripElements};
  }
  bool operator==(const ScanShape&) const = default;
};
inline constexpr size_t kMaxScanTiles = 24;  // open at a time

// Where the element at a position of a tile's segment is.
class RowFinder {
 public:
  RowFinder(size_t rows, size_t columns)
      : padded_(uint32_t(ScanShape::strips(columns) * kStripElements)),
        inverse_(rows == 1 ? 0 : uint32_t(65536 / ScanShape::strips(columns) + 1)) {}

  struct Place {
    uint32_t row, column;
  };
  Place operator()(uint32_t position) const {
    const uint32_t row = (position / uint32_t(kStripElements)) * inverse_ >> 16;
    return {row, position - row * padded_};
  }

 private:
  uint32_t padded_, inverse_;  // there are at most 256 strips: a product is exact
};

// Where it lies: `stride` bytes from one row to the next.
struct ScanRows {
  const void* data = nullptr;
  ptrdiff_t stride = 0;
};

struct Kernels {
  std::string_view name;  // "scalar", "avx2", ...

  // Writes the ascending positions where a and b differ; returns how many. n <= kSegmentElements;
  // `positions` has room for n + kStripElements (vector stores may run over).
  size_t (*diff[4])(const void* a, const void* b, size_t n, uint16_t* positions) noexcept;
  // Bit i of masks[i / 64] is set where element i differs; ceil(n / 64) words are written in full.
  size_t (*diff_mask[4])(const void* a, const void* b, size_t n, uint64_t* masks) noexcept;
  bool (*equal)(const void* a, const void* b, size_t num_bytes) noexcept;
  void (*gather[4])(const void* src, const uint32_t* positions, size_t count,
                    void* values) noexcept;
  void (*scatter[4])(void* dst, const uint32_t* positions, const void* values,
                     size_t count) noexcept;
  // Both at once: dst gets the values, and they become what was there. No position comes twice.
  void (*exchange[4])(void* dst, const uint32_t* positions, void* values, size_t count) noexcept;

  // Class scan, to an index for each tile: at most kSegmentStrips strips of one.
  void (*index[4])(ScanRows data, ScanShape shape, const ClassSplit& split,
                   SegmentIndex* out) noexcept;
  // One index of all tiles together, fused with diff: one pass over both arrays. At most
  // kSegmentStrips strips in all. Writes the positions, strip * kStripElements + element, in the
  // order of memory, with room for kStripElements more, and returns how many. Of `out`, which is
  // about `a`, only `total` is to be read; the rest is private to the target, for rank() and
  // counts_before().
  size_t (*index_diff[4])(ScanRows a, ScanRows b, ScanShape shape, const ClassSplit& split,
                          SegmentIndex* out, uint16_t* positions) noexcept;
  // How many elements of each class come before the strips of each tile of that scan, and in all:
  // shape.num_tiles() + 1 counts.
  void (*counts_before)(const SegmentIndex& index, ScanShape shape, ClassCounts* counts) noexcept;
  // The rank of each position among the elements of its class in the segment that index_diff() saw;
  // classes[i] must be the class of the element at positions[i].
  void (*rank)(const SegmentIndex& index, const ClassSplit& split, const uint16_t* positions,
               const uint8_t* classes, size_t count, uint16_t* ranks) noexcept;
  // The inverse for one class: the positions of its elements number ranks[i] - base. Every
  // ranks[i] - base must be below the class's total in this segment.
  void (*locate)(const SegmentIndex& index, const ClassSplit& split, uint8_t class_id,
                 const uint32_t* ranks, uint32_t base, size_t count, uint16_t* positions) noexcept;

  // sum128 (sum_math.h): adds the terms of num_words words to both lanes of `sums`. `position` is
  // that of the first word in its tensor.
  void (*sum)(const uint8_t* data, size_t num_words, uint64_t position, uint64_t* sums) noexcept;

  // Whole arrays as planes (key_planes.h), one function for each KeyForm; base is at most
  // key_planes::max_base(). How many keys are far from `base`.
  size_t (*count_far[kKeyForms])(const void* data, size_t n, uint8_t base) noexcept;
  // Writes key_planes::bytes() of planes, and the far keys in their order; returns how many.
  size_t (*split_keys[kKeyForms])(const void* data, size_t n, uint8_t base, uint8_t* planes,
                                  uint8_t* far) noexcept;
  // The inverse, of planes that nobody vouches for: false unless split_keys() could have made them.
  bool (*join_keys[kKeyForms])(const uint8_t* planes, const uint8_t* far, size_t num_far,
                               uint8_t base, size_t n, void* data) noexcept;

  // The largest of the elements without their signs, as integers: elements of 16 bits, of 32 bits.
  uint32_t (*largest[2])(const void* data, size_t n) noexcept;
  // E4M3 of each finite element times `inverse` (fp8_math.h), one function for each WideFloat.
  void (*to_e4m3[kWideFloats])(const void* data, size_t n, float inverse, uint8_t* out) noexcept;
};

// Index into the per-width members: widths 1, 2, 4, 8.
constexpr size_t width_index(size_t width) noexcept {
  return width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3;
}

// Targets this machine can run, best first, "scalar" last.
std::span<const Kernels* const> available_kernels() noexcept;
// The one in use: the best, or the one named by DELTAWIRE_KERNELS.
const Kernels& kernels() noexcept;
// What DELTAWIRE_KERNELS asks for, if that cannot be had here: kernels() then falls back to the
// best, and a program that wants to be told can ask. Empty otherwise.
std::string_view unknown_kernels() noexcept;
// Switches every later call of kernels(); for tests and benches. False when the name is unknown.
bool force_kernels(std::string_view name) noexcept;

}  // namespace deltawire
