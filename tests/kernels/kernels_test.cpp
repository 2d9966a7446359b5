// Every target must match the scalar reference exactly.
#include "kernels/kernels.h"

#include <gtest/gtest.h>
#include <array>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/targets.h"

namespace deltawire {
namespace {

const size_t kSizes[] = {0,   1,   2,   31,  32,   33,   63,   64,    65,    127,  128,
                         129, 255, 256, 300, 1000, 4096, 8191, 16320, 16383, 16384};

struct Case {
  size_t width, n;
  double density;
  std::vector<uint8_t> a, b;  // one byte of misalignment in front
  const void* left() const { return a.data() + 1; }
  const void* right() const { return b.data() + 1; }
};

Case make_case(size_t width, size_t n, double density, uint64_t seed) {
  std::mt19937_64 random(seed);
  Case c{width, n, density, std::vector<uint8_t>(n * width + 1), {}};
  // Half of the elements have clustered keys, like weights.
  for (size_t i = 0; i < n; ++i) {
    uint64_t element = random();
    if (i % 2 == 0) element = (element & 0x83ff83ff83ff83ffULL) | 0x3c003c003c003c00ULL;
    std::memcpy(c.a.data() + 1 + i * width, &element, width);
  }
  c.b = c.a;
  std::uniform_real_distribution<double> uniform;
  for (size_t i = 0; i < n; ++i) {
    if (uniform(random) < density)
      c.b[1 + i * width + random() % width] ^= uint8_t(1 + random() % 255);
  }
  return c;
}

ClassSplit make_split(size_t width, std::mt19937_64& random) {
  ClassSplit split;
  split.key_shift = uint8_t(random() % (width * 8));
  split.key_mask =
      width == 1 ? uint8_t(0xff >> split.key_shift) : uint8_t(random() % 2 ? 0xff : 0x1f);
  split.num_classes = uint8_t(1 + random() % kMaxClasses);
  int threshold = 0;
  for (int i = 0; i + 1 < split.num_classes; ++i) {
    threshold += 1 + int(random() % 30);
    split.thresholds[i] = uint8_t(threshold);
  }
  return split;
}

class KernelTest : public testing::TestWithParam<const Kernels*> {};

TEST_P(KernelTest, DiffMatchesScalar) {
  const Kernels &target = *GetParam(), &scalar = scalar_kernels();
  for (size_t width : {1, 2, 4, 8}) {
    for (size_t n : kSizes) {
      for (double density : {0.0, 0.01, 0.2, 1.0}) {
        const Case c = make_case(width, n, density, n * 31 + width);
        const size_t w = width_index(width);
        std::vector<uint16_t> expected(n + 64), got(n + 64);
        const size_t count = scalar.diff[w](c.left(), c.right(), n, expected.data());
        ASSERT_EQ(target.diff[w](c.left(), c.right(), n, got.data()), count);
        expected.resize(count), got.resize(count);
        ASSERT_EQ(got, expected) << "width " << width << " n " << n << " density " << density;

        std::vector<uint64_t> expected_mask((n + 63) / 64), mask((n + 63) / 64, ~0ULL);
        scalar.diff_mask[w](c.left(), c.right(), n, expected_mask.data());
        ASSERT_EQ(target.diff_mask[w](c.left(), c.right(), n, mask.data()), count);
        ASSERT_EQ(mask, expected_mask) << "width " << width << " n " << n;
        ASSERT_EQ(target.equal(c.left(), c.right(), n * width), count == 0);
      }
    }
  }
}

struct ScanCase {
  ScanShape shape;
  size_t stride;  // in elements
};
std::vector<ScanCase> scans() {
  std::vector<ScanCase> all;
  for (const size_t n : kSizes) all.push_back({ScanShape::of_row(n), n});
  for (const auto& [rows, columns, tile_columns, stride] :
       std::initializer_list<std::array<size_t, 4>>{{32, 512, 512, 512},
                                                    {32, 1536, 512, 1536},
                                                    {1, 12288, 512, 12288},
                                                    {4, 4096, 512, 4096},
                                                    {16, 961, 512, 1200},
                                                    {31, 961, 512, 1200},
                                                    {256, 64, 64, 128},
                                                    {200, 1, 64, 3},
                                                    {3, 65, 64, 80},
                                                    {7, 1536, 64, 1536},
                                                    {85, 300, 128, 301}}) {
    all.push_back({{rows, columns, tile_columns}, stride});
  }
  return all;
}

TEST(RowFinderTest, LocatesEveryPositionOfEveryShape) {
  for (size_t columns = 1; columns <= kSegmentElements; columns += columns < 700 ? 1 : 613) {
    const size_t strips = ScanShape::strips(columns);
    for (const size_t rows : {size_t{1}, size_t{2}, kSegmentStrips / strips}) {
      if (rows * strips > kSegmentStrips) continue;
      const RowFinder finder(rows, columns);
      for (size_t row = 0; row < rows; ++row) {
        for (const size_t column : {size_t{0}, columns / 2, columns - 1}) {
          const auto at = finder(uint32_t(row * strips * kStripElements + column));
          ASSERT_EQ(at.row, row) << columns;
          ASSERT_EQ(at.column, column) << columns;
        }
      }
    }
  }
}

TEST(ScanShapeTest, StripsAreCountedTileByTile) {
  for (const auto& [shape, stride] : scans()) {
    size_t strip = 0;
    for (size_t tile = 0; tile < shape.num_tiles(); ++tile) {
      ASSERT_EQ(shape.first_strip(tile), strip);
      for (size_t row = 0; row < shape.rows; ++row) {
        const size_t begin = tile * shape.tile_columns, end = begin + shape.columns_of(tile);
        for (size_t column = begin; column < end; column += kStripElements, ++strip) {
          const ScanShape::Strip at = shape.strip(strip);
          ASSERT_EQ(at.tile, tile);
          ASSERT_EQ(at.row, row);
          ASSERT_EQ(at.column, column);
          ASSERT_EQ(at.elements, std::min(kStripElements, end - column));
        }
      }
    }
    ASSERT_EQ(shape.first_strip(shape.num_tiles()), strip);
  }
}

TEST_P(KernelTest, IndexRankAndLocateMatchScalar) {
  const Kernels &target = *GetParam(), &scalar = scalar_kernels();
  std::vector<SegmentIndex> all_expected(kMaxScanTiles), all_got(kMaxScanTiles);
  std::mt19937_64 random(7);
  for (size_t width : {1, 2, 4, 8}) {
    for (const auto& [shape, stride] : scans()) {
      const size_t n = shape.rows * stride, w = width_index(width);
      const Case c = make_case(width, n, 0, n * 17 + width);
      const ScanRows rows{c.left(), ptrdiff_t(stride * width)};
      const ClassSplit split = make_split(width, random);
      SCOPED_TRACE("width " + std::to_string(width) + " rows " + std::to_string(shape.rows) +
                   " columns " + std::to_string(shape.columns) + " classes " +
                   std::to_string(split.num_classes));
      scalar.index[w](rows, shape, split, all_expected.data());
      target.index[w](rows, shape, split, all_got.data());
      for (size_t tile = 0; tile < shape.num_tiles(); ++tile) {
        const SegmentIndex &expected = all_expected[tile], &got = all_got[tile];
        ASSERT_EQ(std::memcmp(got.before, expected.before, sizeof got.before), 0);
        ASSERT_EQ(std::memcmp(got.total, expected.total, sizeof got.total), 0);
        for (uint8_t class_id = 0; class_id < split.num_classes; ++class_id) {
          std::vector<uint32_t> wanted;
          for (uint32_t i = 0; i < expected.total[class_id]; i += 1 + random() % 5) {
            wanted.push_back(1000 + i);
          }
          std::vector<uint16_t> want(wanted.size()), found(wanted.size());
          scalar.locate(expected, split, class_id, wanted.data(), 1000, wanted.size(), want.data());
          target.locate(got, split, class_id, wanted.data(), 1000, wanted.size(), found.data());
          ASSERT_EQ(found, want);
          for (size_t i = 0; i < want.size(); ++i) {  // scalar scratch holds the classes
            ASSERT_EQ(std::count(expected.scratch, expected.scratch + want[i], class_id),
                      wanted[i] - 1000);
            if (i > 20) break;
          }
        }
      }
    }
  }
}

TEST_P(KernelTest, IndexOfDifferencesMatchesScalar) {
  const Kernels &target = *GetParam(), &scalar = scalar_kernels();
  const auto expected = std::make_unique<SegmentIndex>(), got = std::make_unique<SegmentIndex>();
  std::vector<uint16_t> positions(kSegmentElements + kStripElements), others(positions.size());
  std::mt19937_64 random(8);
  for (size_t width : {1, 2, 4, 8}) {
    for (const auto& [shape, stride] : scans()) {
      const size_t strips = shape.rows * ScanShape::strips(shape.columns);
      if (strips > kSegmentStrips) continue;
      for (double density : {0.0, 0.02, 1.0}) {
        const size_t n = shape.rows * stride, w = width_index(width);
        const Case c = make_case(width, n, density, n * 17 + width);
        const ScanRows left{c.left(), ptrdiff_t(stride * width)},
            right{c.right(), ptrdiff_t(stride * width)};
        const ClassSplit split = make_split(width, random);
        SCOPED_TRACE("width " + std::to_string(width) + " rows " + std::to_string(shape.rows) +
                     " columns " + std::to_string(shape.columns) + " classes " +
                     std::to_string(split.num_classes));
        if (n == 0) continue;
        const size_t count =
            scalar.index_diff[w](left, right, shape, split, expected.get(), positions.data());
        ASSERT_EQ(target.index_diff[w](left, right, shape, split, got.get(), others.data()), count);
        ASSERT_TRUE(
            std::equal(positions.begin(), positions.begin() + ptrdiff_t(count), others.begin()));
        ASSERT_EQ(std::memcmp(got->total, expected->total, sizeof got->total), 0);
        std::vector<uint8_t> classes(count);  // scalar scratch holds them
        for (size_t i = 0; i < count; ++i) classes[i] = expected->scratch[positions[i]];
        std::vector<uint16_t> want(count), ranks(count);
        scalar.rank(*expected, split, positions.data(), classes.data(), count, want.data());
        target.rank(*got, split, positions.data(), classes.data(), count, ranks.data());
        ASSERT_EQ(ranks, want);
        std::vector<ClassCounts> counts(shape.num_tiles() + 1), other(counts.size());
        scalar.counts_before(*expected, shape, counts.data());
        target.counts_before(*got, shape, other.data());
        ASSERT_EQ(other, counts);
      }
    }
  }
}

TEST_P(KernelTest, ScatterUndoesGather) {
  const Kernels& target = *GetParam();
  for (size_t width : {1, 2, 4, 8}) {
    const Case c = make_case(width, 5000, 0.1, width);
    std::vector<uint32_t> positions;
    for (uint32_t i = 3; i < 5000; i += 7) positions.push_back(i);
    std::vector<uint8_t> values(positions.size() * width), copy(c.a.size());
    target.gather[width_index(width)](c.left(), positions.data(), positions.size(), values.data());
    target.scatter[width_index(width)](copy.data() + 1, positions.data(), values.data(),
                                       positions.size());
    for (uint32_t i = 0; i < 5000; ++i) {
      const bool wanted = i >= 3 && (i - 3) % 7 == 0;
      for (size_t k = 0; k < width; ++k) {
        ASSERT_EQ(copy[1 + i * width + k], wanted ? c.a[1 + i * width + k] : 0);
      }
    }
  }
}

TEST_P(KernelTest, ExchangeMatchesScatterAndGatherAndReverts) {
  const Kernels& target = *GetParam();
  for (size_t width : {1, 2, 4, 8}) {
    for (size_t count : {0, 1, 31, 32, 33, 700}) {
      const Case c = make_case(width, 5000, 0.1, width);
      std::vector<uint32_t> positions;
      for (uint32_t i = 3; positions.size() < count; i += 7) positions.push_back(i);
      std::vector<uint8_t> data = c.a, values(count * width + 1, 0x5a);
      const std::vector<uint8_t> news = values;
      target.exchange[width_index(width)](data.data() + 1, positions.data(), values.data(), count);
      std::vector<uint8_t> expected = c.a, kept(count * width + 1, 0x5a);
      const Kernels& scalar = scalar_kernels();
      scalar.gather[width_index(width)](c.left(), positions.data(), count, kept.data());
      scalar.scatter[width_index(width)](expected.data() + 1, positions.data(), news.data(), count);
      ASSERT_EQ(data, expected);
      ASSERT_EQ(values, kept);
      target.exchange[width_index(width)](data.data() + 1, positions.data(), values.data(), count);
      ASSERT_EQ(data, c.a);
      ASSERT_EQ(values, news);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, KernelTest,
                         testing::ValuesIn(available_kernels().begin(), available_kernels().end()),
                         [](const auto& info) {
                           std::string name(info.param->name);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(KernelRegistry, ScalarIsAlwaysAvailableAndCanBeForced) {
  const std::string before(kernels().name);
  EXPECT_EQ(available_kernels().back()->name, "scalar");
  EXPECT_TRUE(force_kernels("scalar"));
  EXPECT_EQ(kernels().name, "scalar");
  EXPECT_FALSE(force_kernels("abacus"));
  EXPECT_EQ(kernels().name, "scalar");
  EXPECT_TRUE(force_kernels(before));
}

}  // namespace
}  // namespace deltawire
