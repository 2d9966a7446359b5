// Parts of an array that somebody holds, wherever they lie in memory: a slice of the rows or
// columns of a matrix, in a buffer that may hold others' rows in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/bytes.h"
#include "codec/codec.h"
#include "codec/tiles.h"
#include "deltawire/status.h"

namespace deltawire {

// `rows` x `columns` elements of the array's matrices, from (row, column) on. Rows count through
// all matrices; an array without matrices is one row.
struct Region {
  size_t row = 0, column = 0, rows = 0, columns = 0;
  uint8_t* data = nullptr;
  ptrdiff_t stride = 0;  // bytes from one row to the next

  // Of an element that it holds: its row and column in the array.
  uint8_t* at(size_t array_row, size_t array_column, size_t width) const {
    return data + ptrdiff_t(array_row - row) * stride + (array_column - column) * width;
  }

  bool operator==(const Region&) const = default;
};

// Regions of one array that do not overlap.
class RegionSet {
 public:
  // Checked: InvalidArgument unless they lie inside n elements and do not overlap.
  static Result<RegionSet> of(Layout layout, size_t n, std::span<const Region> regions);

  // The region that holds a whole tile, in rows that its codec can write to; null: none does.
  const Region* holder(const Tile& tile) const;
  bool touches(const Tile& tile) const;
  // Copies what is held of a tile to `to`, which has the tile's rows one after the other; what is
  // not held comes from `read_old`.
  Status gather(const Tile& tile, const ReadOld& read_old, uint8_t* to) const;
  // Writes what is held of a tile back.
  void scatter(const Tile& tile, const uint8_t* from) const;
  uint8_t* at(const Region& region, const Tile& tile) const;

 private:
  struct Overlap;
  template <class Body>
  void for_each_overlap(const Tile& tile, const Body& body) const;
  template <class Body>
  void for_each_row(const Tile& tile, const Body& body) const;

  size_t width_ = 1, columns_ = 1;
  std::span<const Region> regions_;
};

}  // namespace deltawire
