// How an array is cut into blocks that are coded one by one: runs of elements in order, or, for
// matrices, rectangular tiles, so that whoever holds some columns of a matrix can decode the tiles
// of those without the others. docs/format.md, "Tiles".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "codec/codec.h"
#include "kernels/kernels.h"
#include "kernels/tight_math.h"

namespace deltawire {

// 2^block_log2 elements to a block; columns_log2 = 0: in the order of the array. A tile has
// 2^columns_log2 columns and as many rows as make up the block.
struct TileShape {
  uint8_t block_log2 = tight::kBlockLog2;
  uint8_t columns_log2 = 0;

  bool tiled() const { return columns_log2 != 0; }
  bool operator==(const TileShape&) const = default;
};
inline constexpr uint8_t kMinTileColumnsLog2 = 6, kMaxTileColumnsLog2 = 9;
// So that offsets within a tile fit 32 bits, whatever its width.
inline constexpr uint32_t kMaxTiledColumns = 1U << 20;

// What an encoder takes for n elements: tiles as wide as a slice of the columns by 8, 4 or 2 allows
// without cutting one; vectors and small matrices are not tiled.
TileShape choose_tiles(Layout layout, size_t n);
// Whether a payload may say so of n elements.
bool tiles_fit(TileShape shape, Layout layout, size_t n);

// A block: `rows` rows of `columns` elements. One that is not a tile has one row.
struct Tile {
  size_t begin;  // its first element, counted in the array
  size_t rows, columns;
  size_t size() const { return rows * columns; }
};

class Tiling {
 public:
  Tiling(TileShape shape, Layout layout, size_t n);

  size_t size() const { return num_tiles_; }
  Tile operator[](size_t i) const;
  // Elements from one row of a tile to the next.
  size_t stride() const { return columns_; }
  // Tiles side by side, and the panels that they make up.
  size_t tiles_per_panel() const { return per_panel_; }
  size_t num_panels() const { return num_tiles_ / per_panel_; }
  bool tiled() const { return shape_.tiled(); }

 private:
  TileShape shape_;
  size_t n_, rows_ = 1, columns_, panels_per_matrix_ = 1, per_panel_ = 1, num_tiles_;
};

// Neighbouring tiles of one panel, which a thread scans together: row by row, so that memory is
// read in order.
struct TileGroup {
  size_t first, count;
};

// Tiles to a group where each has an index of its own: about 1,024 columns, so that a group is
// still in the second-level cache when its new values are written.
size_t decoded_together(const Tiling& tiling);

// Groups, and runs of groups that go to one thread: it can ask for the next one's weights in time.
class TileGroups {
 public:
  // At most `most` tiles to a group.
  TileGroups(const Tiling& tiling, const ThreadPool* pool, size_t most = kMaxScanTiles);

  size_t num_runs() const { return (num_groups_ + run_ - 1) / run_; }
  size_t begin(size_t run) const { return run * run_; }
  size_t end(size_t run) const {
    return begin(run + 1) < num_groups_ ? begin(run + 1) : num_groups_;
  }
  TileGroup group(size_t i) const;
  size_t group_of(size_t tile) const {
    return tile / per_panel_ * groups_per_panel_ + tile % per_panel_ / tiles_;
  }

 private:
  size_t per_panel_, tiles_, groups_per_panel_, num_groups_, run_;
};

// A step of a scan over a group: some rows of all its tiles, a segment of the kernels for each.
struct Stripe {
  size_t begin;   // the first element, counted in the array
  size_t offset;  // from the begin of a tile, in memory that has `stride` elements to a row
  ScanShape shape;
  size_t rows_left, columns_left;  // of the group from here on: what to ask for next
};

class Stripes {
 public:
  // A segment for each tile, or one for all of them together.
  enum Segments : uint8_t { kEach, kTogether };
  Stripes(const Tiling& tiling, TileGroup group, size_t stride, Segments segments = kEach);
  size_t size() const { return count_; }
  Stripe operator[](size_t i) const;

 private:
  const bool tiled_;
  const size_t array_stride_, stride_;
  Tile front_;
  size_t columns_, step_, count_;
};

// Calls take(row, begin, count) for the elements of a stripe: runs that lie in order in the array,
// from row number `row` on.
template <class Take>
void for_each_piece(const Tiling& tiling, const Stripe& stripe, const Take& take) {
  const size_t columns = stripe.shape.columns;
  const bool in_order = columns == tiling.stride();
  for (size_t row = 0; row < (in_order ? 1 : stripe.shape.rows); ++row) {
    take(row, stripe.begin + row * tiling.stride(),
         in_order ? stripe.shape.rows * columns : columns);
  }
}

// Entropy coding leaves the memory bus idle, and a scan waits for it. So `work` units of coding are
// spread over the `steps` of a scan: next_unit() is due while due(step) before each step; all that
// are left while due(steps).
class Spread {
 public:
  Spread(size_t work, size_t steps) : work_(work), steps_(steps) {}
  bool due(size_t step) const { return next_ < work_ && next_ * steps_ <= step * work_; }
  size_t next_unit() { return next_++; }

 private:
  size_t work_, steps_, next_ = 0;
};

// ---- the directory of a payload: a length for each block, then the blocks

void put_directory(const std::vector<std::vector<uint8_t>>& blocks, std::vector<uint8_t>* out);
// The lengths, taken off the front of `rest`; the blocks have `size` bytes with what is left of the
// directory. `what` is named in errors.
Result<std::vector<uint64_t>> take_lengths(const char* what, size_t num_blocks, uint64_t size,
                                           Bytes* rest);
// The blocks of `rest`, which ends with the last one.
Result<std::vector<Bytes>> take_directory(const char* what, Bytes rest, size_t num_blocks);

}  // namespace deltawire
