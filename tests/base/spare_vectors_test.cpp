#include "base/spare_vectors.h"

#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(SpareVectorsTest, MemoryIsUsedAgainForWhatIsALittleLarger) {
  SpareVectors spare(64 * kMiB);
  std::vector<uint8_t> first = spare.take(kMiB);
  EXPECT_EQ(first.size(), kMiB);
  const uint8_t* const memory = first.data();
  spare.give_back(std::move(first));
  EXPECT_GE(spare.held_bytes(), kMiB);
  const std::vector<uint8_t> second = spare.take(kMiB + kMiB / 16);
  EXPECT_EQ(second.size(), kMiB + kMiB / 16);
  EXPECT_EQ(second.data(), memory);
  EXPECT_EQ(spare.held_bytes(), 0);
}

TEST(SpareVectorsTest, WhatIsFarTooLargeIsLeftForOthers) {
  SpareVectors spare(64 * kMiB);
  spare.give_back(std::vector<uint8_t>(8 * kMiB));
  EXPECT_EQ(spare.take(kMiB).size(), kMiB);
  EXPECT_EQ(spare.held_bytes(), 8 * kMiB);
}

TEST(SpareVectorsTest, NoMoreIsKeptThanItMay) {
  SpareVectors spare(3 * kMiB);
  for (int i = 0; i < 5; ++i) spare.give_back(std::vector<uint8_t>(kMiB));
  EXPECT_EQ(spare.held_bytes(), 3 * kMiB);
  spare.give_back(std::vector<uint8_t>(100));  // not worth it
  EXPECT_EQ(spare.held_bytes(), 3 * kMiB);
}

TEST(SpareVectorsTest, SmallOnesAndNoneAreMadeAnew) {
  SpareVectors spare(kMiB);
  EXPECT_TRUE(spare.take(0).empty());
  EXPECT_EQ(spare.take(5).size(), 5);
}

}  // namespace
}  // namespace deltawire::testing
