// Digests of what an array will be, and payloads of changes that are known.
#include "delta/apply_plan.h"

#include <gtest/gtest.h>

#include "checkpoints.h"
#include "codec/codec.h"
#include "codec/gaps.h"
#include "format/layout.h"

namespace deltawire::testing {
namespace {

TEST(PatchedDigestTest, IsTheDigestOfThePatchedArray) {
  for (const uint64_t elements : {1U, 7U, 32767U, 32768U, 32769U, 100000U}) {
    for (const double density : {0.0001, 0.01, 0.9}) {
      TestTensor tensor = make_tensor("t", DType::kBF16, {elements}, elements);
      const std::vector<uint8_t> before = tensor.bytes;
      change(&tensor, density, 5);
      const Layout layout = layout_of(DType::kBF16);
      const Codec& codec = *find_codec("tight");
      const auto encoded = codec.encode(layout, before, tensor.bytes, nullptr);
      ASSERT_TRUE(encoded.ok());
      const auto changes = codec.decode(layout, encoded->payload, before, nullptr);
      ASSERT_TRUE(changes.ok()) << changes.status().to_string();
      EXPECT_EQ(digests_around(2, before, {changes->positions, changes->values}, nullptr).after,
                digest_of(DigestKind::kSum128, tensor.bytes))
          << elements << " " << density;
      // The same changes as a payload of their own.
      std::vector<uint8_t> patched = before;
      const std::vector<uint8_t> payload = gaps_payload(2, changes->positions, changes->values);
      ASSERT_TRUE(find_codec("gaps")->apply(layout, payload, patched, nullptr).ok());
      EXPECT_EQ(patched, tensor.bytes);
    }
  }
}

TEST(PatchedDigestTest, GapsAreAsWideAsTheyMustBe) {
  for (const uint64_t gap : {uint64_t{0xffff}, uint64_t{0x10000}}) {
    const std::vector<uint64_t> positions = {3, 4 + gap};
    const std::vector<uint8_t> values = {1, 2};
    const std::vector<uint8_t> payload = gaps_payload(1, positions, values);
    EXPECT_EQ(payload[0], gap == 0xffff ? 2 : 4);
    std::vector<uint8_t> array(5 + gap);
    ASSERT_TRUE(find_codec("gaps")->apply({1, 0, 0xff}, payload, array, nullptr).ok());
    EXPECT_EQ(array[3], 1);
    EXPECT_EQ(array[4 + gap], 2);
  }
  EXPECT_TRUE(gaps_payload(2, {}, {}).empty());
}

}  // namespace
}  // namespace deltawire::testing
