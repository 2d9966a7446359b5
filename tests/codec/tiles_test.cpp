// How arrays are divided into tiles: every element lies in exactly one, for every shape.
#include "codec/tiles.h"

#include <gtest/gtest.h>

#include <tuple>

namespace deltawire {
namespace {

Layout matrices(uint32_t rows, uint32_t columns) {
  Layout layout;
  layout.width = 2;
  layout.rows = rows;
  layout.columns = columns;
  return layout;
}

TEST(ChooseTiles, ChoosesTheWidestThatSlicesAllow) {
  const std::tuple<uint32_t, uint32_t, unsigned> cases[] = {
      {4096, 4096, 9},   // 8 slices of 512
      {4096, 12288, 9},  // 8 of 1,536
      {4096, 14336, 8},  // 8 of 1,792
      {4096, 11008, 6},  // 4 of 2,752; 8 would be of 1,376
      {5120, 5120, 7},           {1024, 2560, 6},
      {1024, 1024, 7},           {4096, 1100, 9},  // no slices: as for rows
      {151936, 4096, 9},         {512, 511, 0},    // less than a block
      {1, 1 << 20, 0},                             // a vector
      {1 << 20, 64, 0},                            // narrower than two tiles
      {512, (1 << 20) + 512, 0}, {0, 0, 0},
  };
  for (const auto& [rows, columns, log2] : cases) {
    const size_t n = rows == 0 ? 1'000'000 : size_t{rows} * columns;
    EXPECT_EQ(choose_tiles(matrices(rows, columns), n).columns_log2, log2)
        << rows << " x " << columns;
  }
  EXPECT_FALSE(choose_tiles(matrices(512, 512), 512 * 512 + 1).tiled());
}

TEST(Tiling, CoversEveryElementOnce) {
  const std::tuple<size_t, uint32_t, uint32_t, unsigned> cases[] = {
      {1, 512, 512, 9}, {3, 300, 1344, 9}, {2, 1025, 512, 6}, {1, 70, 3000, 6}, {2, 9000, 70, 6}};
  ThreadPool pool(3);
  for (const auto& [count, rows, columns, log2] : cases) {
    const size_t n = count * rows * columns;
    const TileShape shape{14, uint8_t(log2)};
    ASSERT_TRUE(tiles_fit(shape, matrices(rows, columns), n));
    const Tiling tiling(shape, matrices(rows, columns), n);
    std::vector<uint8_t> seen(n);
    for (size_t i = 0; i < tiling.size(); ++i) {
      const Tile tile = tiling[i];
      ASSERT_LE(tile.size(), size_t{1} << shape.block_log2);
      for (size_t row = 0; row < tile.rows; ++row) {
        for (size_t column = 0; column < tile.columns; ++column) {
          ++seen.at(tile.begin + row * tiling.stride() + column);
        }
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), ptrdiff_t(n));

    for (ThreadPool* const workers : {static_cast<ThreadPool*>(nullptr), &pool}) {
      const TileGroups groups(tiling, workers);
      size_t next = 0;
      for (size_t run = 0; run < groups.num_runs(); ++run) {
        for (size_t i = groups.begin(run); i < groups.end(run); ++i) {
          const TileGroup group = groups.group(i);
          EXPECT_EQ(group.first, next);
          EXPECT_LE(group.count, kMaxScanTiles);
          next += group.count;
          EXPECT_EQ(group.first / tiling.tiles_per_panel(), (next - 1) / tiling.tiles_per_panel());
        }
      }
      EXPECT_EQ(next, tiling.size());
    }
  }
}

TEST(Tiling, IsForMatricesOnly) {
  const TileShape tiles{18, 9};
  EXPECT_FALSE(tiles_fit(tiles, matrices(0, 0), 1 << 20));
  EXPECT_FALSE(tiles_fit(tiles, matrices(1000, 1000), 1 << 20));
  EXPECT_FALSE(tiles_fit(tiles, matrices(2, 1 << 21), 1 << 22));
  EXPECT_TRUE(tiles_fit({}, matrices(0, 0), 1 << 20));
  // Offsets within a tile must fit 32 bits.
  EXPECT_TRUE(tiles_fit({18, 6}, matrices(1, 1 << 20), 1 << 20));
  EXPECT_FALSE(tiles_fit({20, 6}, matrices(1, 1 << 20), 1 << 20));
}

}  // namespace
}  // namespace deltawire
