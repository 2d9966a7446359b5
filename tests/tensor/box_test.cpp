// Slices and rows of boxes: every byte of a tensor exactly once, in order.
#include "tensor/box.h"

#include "checkpoints.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

struct Case {
  DType dtype;
  Shape shape;
  Box box;
  uint64_t max_bytes;
};

class SplitRowsTest : public ::testing::TestWithParam<Case> {};

TEST_P(SplitRowsTest, SlicesAreTheBoxInOrder) {
  const Case& c = GetParam();
  const TestTensor tensor = make_tensor("t", c.dtype, c.shape, 7);
  std::vector<uint8_t> contents(tensor_size_bytes(c.dtype, box_shape(c.box, c.shape)).value());
  copy_box_out(c.box, c.dtype, c.shape, tensor.bytes, contents);
  const std::vector<Slice> slices = split_rows(c.box, c.dtype, c.shape, c.max_bytes);
  EXPECT_GT(slices.size(), 1);
  uint64_t at = 0;
  for (const Slice& slice : slices) {
    ASSERT_TRUE(check_box(slice.box, c.dtype, c.shape).ok());
    EXPECT_EQ(slice.begin, at);
    EXPECT_LE(slice.size_bytes, c.max_bytes);
    std::vector<uint8_t> own(slice.size_bytes);
    copy_box_out(slice.box, c.dtype, c.shape, tensor.bytes, own);
    EXPECT_TRUE(std::equal(own.begin(), own.end(), contents.begin() + ptrdiff_t(at)));
    at += slice.size_bytes;
  }
  EXPECT_EQ(at, contents.size());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SplitRowsTest,
    ::testing::Values(Case{DType::kBF16, {100, 30}, {}, 1000},
                      Case{DType::kBF16, {7, 6, 5}, {}, 60},  // whole rows of dimension 0
                      Case{DType::kBF16, {7, 6, 5}, {}, 21},  // rows of dimension 1
                      Case{DType::kF32, {2, 3, 50}, {}, 40},  // pieces of the last dimension
                      Case{DType::kF32, {1, 1, 50}, {}, 40}, Case{DType::kF64, {999}, {}, 64},
                      Case{DType::kF4, {64, 10}, {}, 50}, Case{DType::kF4, {400}, {}, 50},
                      Case{DType::kBF16, {10, 20}, {{2, 5}, {8, 10}}, 60}));

TEST(SplitRowsTest, SmallOrIndivisibleBoxesStayWhole) {
  EXPECT_EQ(split_rows({}, DType::kBF16, {10, 10}, 200).size(), 1);
  EXPECT_TRUE(split_rows({}, DType::kBF16, {10, 10}, 200)[0].box.whole());
  EXPECT_EQ(split_rows({}, DType::kF32, {}, 1).size(), 1);
  EXPECT_EQ(split_rows({}, DType::kBF16, {0, 7}, 1).size(), 1);
  // Rows of seven packed elements do not end at a byte boundary.
  EXPECT_EQ(split_rows({}, DType::kF4, {64, 7}, 50).size(), 1);
}

TEST(BoxRowsTest, RowsAreTheBytesOfTheBox) {
  const Shape shape = {4, 6, 10};
  const TestTensor tensor = make_tensor("t", DType::kBF16, shape, 3);
  for (const Box& box : {Box{}, Box{{1, 0, 0}, {2, 6, 10}}, Box{{1, 2, 0}, {3, 3, 10}},
                         Box{{0, 1, 4}, {4, 5, 3}}, Box{{3, 5, 9}, {1, 1, 1}}}) {
    std::vector<uint8_t> contents(tensor_size_bytes(DType::kBF16, box_shape(box, shape)).value());
    copy_box_out(box, DType::kBF16, shape, tensor.bytes, contents);
    const BoxRows rows(box, DType::kBF16, shape);
    ASSERT_EQ(rows.count() * rows.row_bytes(), contents.size());
    for (uint64_t row = 0; row < rows.count(); ++row) {
      EXPECT_TRUE(std::equal(contents.begin() + ptrdiff_t(row * rows.row_bytes()),
                             contents.begin() + ptrdiff_t((row + 1) * rows.row_bytes()),
                             tensor.bytes.begin() + ptrdiff_t(rows.position(row))));
      EXPECT_EQ(rows.first_behind(rows.position(row)), row);
      EXPECT_EQ(rows.first_behind(rows.position(row) + rows.row_bytes()), row + 1);
    }
  }
  EXPECT_EQ(BoxRows({}, DType::kBF16, {4, 6, 10}).count(), 1);
  EXPECT_EQ(BoxRows({}, DType::kBF16, {0, 6}).count(), 0);
  EXPECT_EQ(BoxRows({}, DType::kF32, {}).row_bytes(), 4);
}

Status cover(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<const Box*> all;
  for (const Box& box : boxes) all.push_back(&box);
  return check_cover(DType::kBF16, shape, all);
}

// Splits boxes at random places until there are `count` or nothing is left to split.
std::vector<Box> cut_at_random(const Shape& shape, size_t count, std::mt19937_64& random) {
  std::vector<Box> boxes = {{std::vector<uint64_t>(shape.size()), shape}};
  for (size_t tries = 0; boxes.size() < count && tries < 100 * count; ++tries) {
    const size_t i = random() % boxes.size(), d = random() % shape.size();
    if (boxes[i].extent[d] < 2) continue;
    Box right = boxes[i];
    const uint64_t left = 1 + random() % (right.extent[d] - 1);
    boxes[i].extent[d] = left;
    right.offset[d] += left, right.extent[d] -= left;
    boxes.push_back(right);
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

TEST(BoxCover, ErrorsNameTheBoxes) {
  EXPECT_TRUE(cover({4, 6}, {{{0, 0}, {4, 3}}, {{0, 3}, {4, 3}}}).ok());
  EXPECT_TRUE(cover({4, 6}, {{}}).ok());
  EXPECT_EQ(cover({4, 6}, {{{0, 0}, {4, 4}}, {{0, 3}, {4, 2}}}).message(),
            "boxes 0,0+4,4 and 0,3+4,2 overlap");
  EXPECT_EQ(cover({4, 6}, {{{0, 0}, {4, 3}}, {{0, 3}, {4, 2}}}).message(),
            "boxes cover 40 of 48 bytes");
  EXPECT_EQ(cover({4, 6}, {}).message(), "boxes cover 0 of 48 bytes");
  EXPECT_FALSE(cover({4, 6}, {{{0, 0}, {4, 7}}}).ok());
}

TEST(BoxCover, AcceptsTilingsRejectsShiftedBoxes) {
  std::mt19937_64 random(1);
  for (const Shape& shape :
       {Shape{40}, Shape{12, 30}, Shape{9, 10, 11}, Shape{5, 6, 7, 8}, Shape{2, 2, 2, 2, 2, 2}}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<Box> boxes = cut_at_random(shape, 2 + random() % 30, random);
      EXPECT_TRUE(cover(shape, boxes).ok());
      Box& moved = boxes[random() % boxes.size()];
      const size_t d = random() % shape.size();
      if (moved.extent[d] == shape[d]) continue;
      const uint64_t places = shape[d] - moved.extent[d] + 1;
      moved.offset[d] = (moved.offset[d] + 1 + random() % (places - 1)) % places;
      EXPECT_EQ(cover(shape, boxes).code(), Code::kCorruption);
    }
  }
}

// As many boxes as a hostile manifest may have.
TEST(BoxCover, HandlesTensOfThousandsOfBoxes) {
  std::mt19937_64 random(2);
  std::vector<Box> boxes = cut_at_random({4000, 4000, 16}, 50'000, random);
  ASSERT_EQ(boxes.size(), 50'000);
  EXPECT_TRUE(cover({4000, 4000, 16}, boxes).ok());
  std::vector<Box> gap = boxes;
  gap.pop_back();
  EXPECT_TRUE(contains(cover({4000, 4000, 16}, gap).message(), "boxes cover "));
  boxes.back() = boxes.front();  // behind all that is compared, when it is not among the first
  EXPECT_EQ(cover({4000, 4000, 16}, boxes).code(), Code::kCorruption);
}

}  // namespace
}  // namespace deltawire::testing
