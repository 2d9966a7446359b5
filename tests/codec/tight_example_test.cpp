// The worked example of docs/format.md, byte for byte.
#include <gtest/gtest.h>

#include <vector>

#include "codec/codec.h"

namespace deltawire {
namespace {

TEST(TightExample, MatchesTheFormatDocument) {
  std::vector<uint16_t> before = {0x3c00, 0x3b10, 0xbc22, 0x3980, 0x3a55, 0x3c7f, 0xb901, 0x3b00,
                                  0x3c11, 0xbb33, 0x3a00, 0x3c44, 0x3990, 0xbc01, 0x3b77, 0x3c05};
  std::vector<uint16_t> after = before;
  after[3] += 1;
  after[6] -= 1;
  after[12] += 5;
  const std::vector<uint8_t> expected = {0x12, 0x73, 0x08, 0x0b, 0xfe, 0x03, 0x20, 0x96,
                                         0x41, 0x02, 0x00, 0xb8, 0x08, 0x5c, 0x01};
  const Layout bf16{2, 7, 0xff};
  const auto bytes = [](std::vector<uint16_t>& v) {
    return MutableBytes(reinterpret_cast<uint8_t*>(v.data()), v.size() * 2);
  };
  const Codec& tight = *find_codec("tight");
  const auto encoded = tight.encode(bf16, bytes(before), bytes(after), nullptr);
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(encoded->payload, expected);
  ASSERT_TRUE(tight.apply(bf16, expected, bytes(before), nullptr).ok());
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace deltawire
