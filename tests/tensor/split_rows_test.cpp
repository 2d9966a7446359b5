// Slices and rows of boxes: every byte of a tensor exactly once, in order.
#include "tensor/box.h"

#include "checkpoints.h"

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

TEST(SplitRowsTest, WhatIsSmallOrCannotBeCutStaysWhole) {
  EXPECT_EQ(split_rows({}, DType::kBF16, {10, 10}, 200).size(), 1);
  EXPECT_TRUE(split_rows({}, DType::kBF16, {10, 10}, 200)[0].box.whole());
  EXPECT_EQ(split_rows({}, DType::kF32, {}, 1).size(), 1);
  EXPECT_EQ(split_rows({}, DType::kBF16, {0, 7}, 1).size(), 1);
  // Rows of seven packed elements do not end at a byte.
  EXPECT_EQ(split_rows({}, DType::kF4, {64, 7}, 50).size(), 1);
}

TEST(BoxRowsTest, RowsAreTheBoxesBytes) {
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

}  // namespace
}  // namespace deltawire::testing
