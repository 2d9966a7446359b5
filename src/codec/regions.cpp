#include "codec/regions.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "codec/checks.h"

namespace deltawire {
namespace {

bool overlap(size_t a, size_t a_size, size_t b, size_t b_size) {
  return a_size != 0 && b_size != 0 && a < b + b_size && b < a + a_size;
}

Status check_overlap(std::span<const Region> regions) {
  std::vector<size_t> order(regions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return regions[i].row; });
  for (size_t k = 0; k < order.size(); ++k) {
    const Region& a = regions[order[k]];
    for (size_t m = k + 1; m < order.size() && regions[order[m]].row < a.row + a.rows; ++m) {
      const Region& b = regions[order[m]];
      if (overlap(a.row, a.rows, b.row, b.rows) &&
          overlap(a.column, a.columns, b.column, b.columns)) {
        return invalid_argument("regions " + std::to_string(std::min(order[k], order[m])) +
                                " and " + std::to_string(std::max(order[k], order[m])) +
                                " overlap");
      }
    }
  }
  return {};
}

}  // namespace

// A part of a tile that a region holds; row and column count within the tile.
struct RegionSet::Overlap {
  size_t row, column, rows, columns;  // of the tile
  const Region& region;
};

Result<RegionSet> RegionSet::of(Layout layout, size_t n, std::span<const Region> regions) {
  DW_RETURN_IF_ERROR(check_array(layout, n * layout.width));
  RegionSet set;
  set.width_ = layout.width;
  set.columns_ = layout.columns == 0 ? std::max<size_t>(n, 1) : layout.columns;
  set.regions_ = regions;
  const size_t num_rows = n / set.columns_;
  for (size_t i = 0; i < regions.size(); ++i) {
    const Region& a = regions[i];
    if (a.row > num_rows || a.rows > num_rows - a.row || a.column > set.columns_ ||
        a.columns > set.columns_ - a.column) {
      return invalid_argument("region " + std::to_string(i) + " lies outside the array of " +
                              std::to_string(num_rows) + " x " + std::to_string(set.columns_));
    }
  }
  DW_RETURN_IF_ERROR(check_overlap(regions));
  return set;
}

template <class Body>
void RegionSet::for_each_overlap(const Tile& tile, const Body& body) const {
  const size_t row = tile.begin / columns_, column = tile.begin % columns_;
  for (const Region& region : regions_) {
    const size_t first_row = std::max(row, region.row),
                 last_row = std::min(row + tile.rows, region.row + region.rows),
                 first = std::max(column, region.column),
                 last = std::min(column + tile.columns, region.column + region.columns);
    if (first_row >= last_row || first >= last) continue;
    body(Overlap{first_row - row, first - column, last_row - first_row, last - first, region});
  }
}

// Memory of a row of an overlap, and where it is among the tile's bytes.
template <class Body>
void RegionSet::for_each_row(const Tile& tile, const Body& body) const {
  for_each_overlap(tile, [&](const Overlap& part) {
    for (size_t row = part.row; row < part.row + part.rows; ++row) {
      body(part.region.at(tile.begin / columns_ + row, tile.begin % columns_ + part.column, width_),
           (row * tile.columns + part.column) * width_, part.columns * width_);
    }
  });
}

bool RegionSet::touches(const Tile& tile) const {
  bool found = false;
  for_each_overlap(tile, [&](const Overlap&) { found = true; });
  return found;
}

const Region* RegionSet::holder(const Tile& tile) const {
  const size_t row = tile.begin / columns_, column = tile.begin % columns_;
  for (const Region& region : regions_) {
    if (row >= region.row && row + tile.rows <= region.row + region.rows &&
        column >= region.column && column + tile.columns <= region.column + region.columns) {
      // Positions within a tile count elements, in 32 bits.
      const bool fits =
          tile.rows == 1 || (region.stride > 0 && region.stride % ptrdiff_t(width_) == 0 &&
                             uint64_t(region.stride) / width_ * tile.rows < UINT32_MAX);
      return fits ? &region : nullptr;
    }
  }
  return nullptr;
}

uint8_t* RegionSet::at(const Region& region, const Tile& tile) const {
  return region.at(tile.begin / columns_, tile.begin % columns_, width_);
}

Status RegionSet::gather(const Tile& tile, const ReadOld& read_old, uint8_t* to) const {
  size_t held = 0;
  for_each_overlap(tile, [&](const Overlap& part) { held += part.rows * part.columns; });
  if (held < tile.size()) {
    if (!read_old) {
      return unsupported("a part of the array needs old values that are not held here");
    }
    for (size_t row = 0; row < tile.rows; ++row) {
      DW_RETURN_IF_ERROR(read_old(tile.begin + row * columns_,
                                  {to + row * tile.columns * width_, tile.columns * width_}));
    }
  }
  for_each_row(tile,
               [&](uint8_t* live, size_t at, size_t size) { std::memcpy(to + at, live, size); });
  return {};
}

void RegionSet::scatter(const Tile& tile, const uint8_t* from) const {
  for_each_row(tile,
               [&](uint8_t* live, size_t at, size_t size) { std::memcpy(live, from + at, size); });
}

}  // namespace deltawire
