// What a publisher sends is kept only as far as it is sound, wanted, and there is room.
#include "ship/held_objects.h"

#include <gtest/gtest.h>

#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr const char* kOne = "parts/0000000001-0123456789ab/one";
constexpr const char* kTwo = "parts/0000000002-0123456789ab/two";

PartRef ref(const std::string& name, std::string_view text) {
  return {name, text.size(), digest_of(DigestKind::kSha256, as_bytes(text))};
}

std::string text_of(const HeldObjects& held, const char* name) {
  const auto object = held.find(name);
  if (!object) return "(none)";
  std::string text(size_t(object->size()), '\0');
  EXPECT_TRUE(object->read(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}).ok());
  return text;
}

class HeldObjectsTest : public ::testing::Test {
 protected:
  HeldObjects make(uint64_t memory, uint64_t scratch = UINT64_MAX) {
    return HeldObjects({memory, folder_.path(), scratch});
  }
  TempFolder folder_;
};

TEST_F(HeldObjectsTest, PiecesInOrderAndAgainMakeTheObject) {
  for (const uint64_t memory : {0U, 1000U}) {
    HeldObjects held({memory, folder_.path(), UINT64_MAX});
    ASSERT_TRUE(held.add(kOne, 6, 0, as_bytes("ab")).ok());
    ASSERT_TRUE(held.add(kOne, 6, 0, as_bytes("abcd")).ok());  // sent again to a new group
    ASSERT_TRUE(held.add(kOne, 6, 4, as_bytes("ef")).ok());
    EXPECT_EQ(text_of(held, kOne), "(none)");  // not committed
    EXPECT_TRUE(held.commit(1, {ref(kOne, "abcdef")}).empty());
    EXPECT_EQ(text_of(held, kOne), "abcdef");
    EXPECT_EQ(folder_.num_files(), 0);  // nobody else sees it
    held.drop_up_to(1);
    EXPECT_EQ(text_of(held, kOne), "(none)");
    EXPECT_EQ(held.use().memory_bytes + held.use().scratch_bytes, 0);
  }
}

TEST_F(HeldObjectsTest, DamageIsFoundAndNamed) {
  HeldObjects held({1000, folder_.path(), 0});
  ASSERT_TRUE(held.add(kOne, 3, 0, as_bytes("axc")).ok());
  EXPECT_EQ(held.commit(1, {ref(kOne, "abc")}), std::vector<std::string>{kOne});
  EXPECT_EQ(text_of(held, kOne), "(none)");
  EXPECT_EQ(held.use().memory_bytes, 0);
}

TEST_F(HeldObjectsTest, WhatNoHonestPublisherSendsIsRefused) {
  HeldObjects held({1000, folder_.path(), 0});
  EXPECT_FALSE(held.add("../../etc/passwd", 1, 0, as_bytes("x")).ok());
  EXPECT_FALSE(held.add("manifests/0000000001.json", 1, 0, as_bytes("x")).ok());
  EXPECT_FALSE(held.add(kOne, 3, 2, as_bytes("xyz")).ok());
  EXPECT_FALSE(held.add(kOne, 3, UINT64_MAX, as_bytes("xyz")).ok());
  ASSERT_TRUE(held.add(kOne, 3, 0, as_bytes("x")).ok());
  EXPECT_FALSE(held.add(kOne, 4, 1, as_bytes("x")).ok());  // two sizes
}

TEST_F(HeldObjectsTest, GapsAndUncommittedAttemptsAreDropped) {
  HeldObjects held({1000, folder_.path(), 0});
  ASSERT_TRUE(held.add(kOne, 9, 5, as_bytes("late")).ok());
  const std::string other = "parts/0000000001-ffffffffffff/one";
  ASSERT_TRUE(held.add(other, 3, 0, as_bytes("abc")).ok());
  EXPECT_TRUE(held.commit(1, {ref(kOne, "123456789")}).empty());
  EXPECT_EQ(text_of(held, kOne), "(none)");
  EXPECT_EQ(text_of(held, other.c_str()), "(none)");
  EXPECT_EQ(held.use().memory_bytes, 0);
}

TEST_F(HeldObjectsTest, OlderVersionsMakeRoomAndWhatDoesNotFitIsLeft) {
  HeldObjects held({10, folder_.path(), 0});
  ASSERT_TRUE(held.add(kOne, 8, 0, as_bytes("12345678")).ok());
  held.commit(1, {ref(kOne, "12345678")});
  ASSERT_TRUE(held.add(kTwo, 4, 0, as_bytes("abcd")).ok());
  held.commit(2, {ref(kTwo, "abcd")});
  EXPECT_EQ(text_of(held, kOne), "(none)");
  EXPECT_EQ(text_of(held, kTwo), "abcd");
  const std::string large = "parts/0000000003-0123456789ab/large";
  ASSERT_TRUE(held.add(large, uint64_t{1} << 60, 0, as_bytes("x")).ok());  // takes no memory
  EXPECT_LE(held.use().most_memory_bytes, 10);
}

}  // namespace
}  // namespace deltawire::testing
