#include "tensor/box.h"

#include "test_files.h"

namespace deltawire::testing {
namespace {

Status cover(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<const Box*> all;
  for (const Box& box : boxes) all.push_back(&box);
  return check_cover(DType::kBF16, shape, all);
}

// Cuts boxes in two, at any place of any dimension, until there are so many or nothing to cut.
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

TEST(BoxCover, WhatIsWrongIsNamed) {
  EXPECT_TRUE(cover({4, 6}, {{{0, 0}, {4, 3}}, {{0, 3}, {4, 3}}}).ok());
  EXPECT_TRUE(cover({4, 6}, {{}}).ok());
  EXPECT_EQ(cover({4, 6}, {{{0, 0}, {4, 4}}, {{0, 3}, {4, 2}}}).message(),
            "boxes 0,0+4,4 and 0,3+4,2 overlap");
  EXPECT_EQ(cover({4, 6}, {{{0, 0}, {4, 3}}, {{0, 3}, {4, 2}}}).message(),
            "boxes cover 40 of 48 bytes");
  EXPECT_EQ(cover({4, 6}, {}).message(), "boxes cover 0 of 48 bytes");
  EXPECT_FALSE(cover({4, 6}, {{{0, 0}, {4, 7}}}).ok());
}

TEST(BoxCover, EveryTilingIsOneAndEveryMoveOfABoxIsNot) {
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

// As many as a hostile manifest may have.
TEST(BoxCover, TensOfThousands) {
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
