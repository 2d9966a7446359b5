// Regions of an array, patched in place: they get the bits of the whole array, and nothing around
// them is written.
#include "codec/regions.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "codec_arrays.h"
#include "test_files.h"

namespace deltawire {
namespace {

struct Shape {
  size_t matrices;
  uint32_t rows, columns;
};

// Regions of an array in one buffer each, with padding between the rows and around them.
class Held {
 public:
  Held(Layout layout, Bytes array, std::vector<Region> regions, size_t gap)
      : width_(layout.width), columns_(layout.columns), regions_(std::move(regions)) {
    for (Region& region : regions_) {
      const size_t stride = (region.columns + gap) * width_;
      buffers_.emplace_back(region.rows * stride + 2 * kMargin, kOther);
      region.data = buffers_.back().data() + kMargin;
      region.stride = ptrdiff_t(stride);
      for (size_t row = 0; row < region.rows; ++row) {
        std::memcpy(region.data + row * stride, array.data() + offset(region, row),
                    region.columns * width_);
      }
    }
  }

  std::span<const Region> regions() const { return regions_; }

  // Whether the regions equal `array` and the padding is untouched.
  bool equals(Bytes array) const {
    for (size_t i = 0; i < regions_.size(); ++i) {
      const Region& region = regions_[i];
      std::vector<uint8_t> expected(buffers_[i].size(), kOther);
      for (size_t row = 0; row < region.rows; ++row) {
        std::memcpy(expected.data() + kMargin + row * size_t(region.stride),
                    array.data() + offset(region, row), region.columns * width_);
      }
      if (expected != buffers_[i]) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kMargin = 64;
  static constexpr uint8_t kOther = 0xa5;
  size_t offset(const Region& region, size_t row) const {
    return ((region.row + row) * columns_ + region.column) * width_;
  }

  size_t width_, columns_;
  std::vector<Region> regions_;
  std::vector<std::vector<uint8_t>> buffers_;
};

Layout layout_of_shape(unsigned width, const Shape& shape) {
  Layout layout = layout_of(width);
  layout.rows = shape.rows;
  layout.columns = shape.columns;
  return layout;
}

class Regions : public ::testing::TestWithParam<const Codec*> {};

// Slices by 2, 3, 4, 8 and 16 of columns and rows, experts, inner boxes.
std::vector<std::vector<Region>> slicings(const Shape& shape) {
  const size_t rows = shape.matrices * shape.rows, columns = shape.columns;
  std::vector<std::vector<Region>> all;
  for (const size_t parts : {1, 2, 3, 4, 8, 16}) {
    const size_t rank = parts / 2;
    const size_t from = columns * rank / parts, to = columns * (rank + 1) / parts;
    all.push_back({{0, from, rows, to - from}});
    const size_t first = rows * rank / parts, last = rows * (rank + 1) / parts;
    all.push_back({{first, 0, last - first, columns}});
  }
  all.push_back({{rows / 3, columns / 5, rows / 2, columns / 3}});
  all.push_back({{0, 0, 1, 1}, {rows - 1, columns - 1, 1, 1}, {rows / 2, 0, 1, columns}});
  return all;
}

TEST_P(Regions, MatchTheWholeArray) {
  DW_LABEL(long);
  ThreadPool pool(3);
  for (const Shape& shape : {Shape{1, 1024, 1024}, {3, 300, 1344}, {1, 700, 640}, {5, 16, 24}}) {
    for (const unsigned width : {1U, 2U, 4U}) {
      const Layout layout = layout_of_shape(width, shape);
      const size_t n = shape.matrices * shape.rows * shape.columns;
      const ArrayPair pair = make_arrays(width, n, 0.01, n + width);
      const Bytes before = pair.old_bytes.span(), after = pair.new_bytes.span();
      const auto encoded = GetParam()->encode(layout, before, after, &pool);
      ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
      const ReadOld read_old = [&](size_t begin, MutableBytes out) -> Status {
        std::memcpy(out.data(), before.data() + begin * width, out.size());
        return {};
      };
      for (const auto& regions : slicings(shape)) {
        for (const size_t gap : {0, 1, 64}) {
          Held held(layout, before, regions, gap);
          const Status applied = GetParam()->apply_to_regions(
              layout, n, encoded->payload, held.regions(), read_old, gap == 1 ? nullptr : &pool);
          ASSERT_TRUE(applied.ok()) << applied.to_string();
          ASSERT_TRUE(held.equals(after))
              << shape.matrices << " of " << shape.rows << " x " << shape.columns << ", width "
              << width << ", region of " << regions[0].rows << " x " << regions[0].columns;
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, Regions, ::testing::ValuesIn(all_codecs()),
                         [](const auto& codec) { return std::string(codec.param->name()); });

struct Case {
  Shape shape{1, 1024, 1024};
  Layout layout = layout_of_shape(2, shape);
  ArrayPair pair = make_arrays(2, 1024 * 1024, 0.01, 3);
  std::vector<uint8_t> payload =
      tight_codec().encode(layout, pair.old_bytes.span(), pair.new_bytes.span(), nullptr)->payload;
};

// Tiles that lie completely in a region need no old values from elsewhere.
TEST(TightRegions, WholeTilesNeedNoOtherValues) {
  const Case c;
  const ReadOld never = [](size_t, MutableBytes) { return internal_error("asked for old values"); };
  for (const size_t parts : {2, 4, 8}) {
    const size_t columns = 1024 / parts;
    Held held(c.layout, c.pair.old_bytes.span(), {{0, columns, 1024, columns}}, 3);
    const Status applied = tight_codec().apply_to_regions(c.layout, 1024 * 1024, c.payload,
                                                          held.regions(), never, nullptr);
    ASSERT_TRUE(applied.ok()) << applied.to_string();
    EXPECT_TRUE(held.equals(c.pair.new_bytes.span())) << parts;
  }
}

// Only the needed ranges are fetched: for a slice of the columns little more than its share.
TEST(TightRegions, FetchOnlyTheirTiles) {
  const Case c;
  const size_t n = 1024 * 1024;
  const uint64_t size = c.payload.size(), front_bytes = tight_codec().front_bytes(c.layout, n);
  ASSERT_LT(front_bytes, size);
  const Bytes front = Bytes(c.payload).first(front_bytes);
  for (const size_t parts : {2, 4, 8}) {
    for (const uint64_t gap : {0, 512}) {
      const size_t columns = 1024 / parts;
      Held held(c.layout, c.pair.old_bytes.span(), {{0, columns, 1024, columns}}, 0);
      const auto ranges = tight_codec().wanted_bytes(c.layout, n, front, size, held.regions(), gap);
      ASSERT_TRUE(ranges.ok()) << ranges.status().to_string();
      std::vector<uint8_t> fetched(size, 0x5a);
      uint64_t bytes = 0, end = 0;
      for (const ByteRange& range : *ranges) {
        EXPECT_TRUE(range.offset > end || end == 0) << "in order, and not touching";
        end = range.offset + range.size;
        ASSERT_LE(end, size);
        std::memcpy(&fetched[range.offset], &c.payload[range.offset], range.size);
        bytes += range.size;
      }
      const Status applied =
          tight_codec().apply_to_regions(c.layout, n, fetched, held.regions(), {}, nullptr);
      ASSERT_TRUE(applied.ok()) << applied.to_string();
      EXPECT_TRUE(held.equals(c.pair.new_bytes.span())) << parts;
      if (gap == 0) {
        EXPECT_LT(double(bytes), 1.08 / double(parts) * double(size) + 300.0) << parts;
      }
    }
  }
  EXPECT_EQ(
      tight_codec()
          .wanted_bytes(c.layout, n, front.first(5), size,
                        Held(c.layout, c.pair.old_bytes.span(), {{0, 0, 1, 1}}, 0).regions(), 0)
          .status()
          .code(),
      Code::kCorruption);
  // Codecs without a directory are read completely.
  const Region one{0, 0, 1, 1, nullptr, 0};
  EXPECT_EQ(gaps_codec().wanted_bytes(c.layout, n, {}, 77, std::span(&one, 1), 0).value(),
            (std::vector<ByteRange>{{0, 77}}));
}

TEST(TightRegions, MissingOldValuesFailBeforeWriting) {
  const Case c;
  Held held(c.layout, c.pair.old_bytes.span(), {{0, 0, 1024, 100}}, 0);
  const auto apply = [&](const ReadOld& read_old) {
    return tight_codec().apply_to_regions(c.layout, 1024 * 1024, c.payload, held.regions(),
                                          read_old, nullptr);
  };
  EXPECT_EQ(apply({}).code(), Code::kUnsupported);
  EXPECT_EQ(apply([](size_t, MutableBytes) { return unavailable("gone"); }).code(),
            Code::kUnavailable);
  EXPECT_TRUE(held.equals(c.pair.old_bytes.span()));
}

TEST(TightRegions, UnchangedTilesNeedNoOldValues) {
  Case c;
  c.pair = make_arrays(2, 1024 * 1024, 0, 3);
  c.pair.new_bytes.span()[0] ^= 1;  // in the first tile
  const auto payload =
      tight_codec()
          .encode(c.layout, c.pair.old_bytes.span(), c.pair.new_bytes.span(), nullptr)
          ->payload;
  // A region that cuts an unchanged tile, and an empty region.
  Held held(c.layout, c.pair.old_bytes.span(), {{0, 1000, 1024, 24}, {5, 1005, 0, 0}}, 0);
  const Status applied =
      tight_codec().apply_to_regions(c.layout, 1024 * 1024, payload, held.regions(), {}, nullptr);
  ASSERT_TRUE(applied.ok()) << applied.to_string();
  EXPECT_TRUE(held.equals(c.pair.new_bytes.span()));
}

TEST(TightRegions, RejectBadRegions) {
  const Case c;
  const auto refused = [&](std::vector<Region> regions) {
    return tight_codec()
        .apply_to_regions(c.layout, 1024 * 1024, c.payload, regions, {}, nullptr)
        .to_string();
  };
  EXPECT_NE(refused({{0, 1000, 1024, 25}}).find("outside"), std::string::npos);
  EXPECT_NE(refused({{1025, 0, 1, 1}}).find("outside"), std::string::npos);
  EXPECT_NE(refused({{SIZE_MAX, 0, 2, 1}}).find("outside"), std::string::npos);
  EXPECT_NE(refused({{0, 0, 10, 10}, {9, 9, 2, 2}}).find("overlap"), std::string::npos);
}

TEST(TightRegions, DamagedPayloadsAreErrors) {
  DW_LABEL(long);
  const Case c;
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<uint8_t> damaged = c.payload;
    if (i % 3 == 0) {
      damaged.resize(random() % damaged.size());
    } else {
      damaged[i % 3 == 1 ? random() % 200 : random() % damaged.size()] ^=
          uint8_t(1 << random() % 8);
    }
    Held held(c.layout, c.pair.old_bytes.span(), {{0, 256, 1024, 256}}, 0);
    const Status applied =
        tight_codec().apply_to_regions(c.layout, 1024 * 1024, damaged, held.regions(), {}, nullptr);
    EXPECT_NE(applied.code(), Code::kInternal) << applied.to_string();
  }
}

}  // namespace
}  // namespace deltawire
