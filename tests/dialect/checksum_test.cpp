// Checksums of tensors in other projects' formats.
#include "dialect/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace deltawire::testing {
namespace {

std::string hex(ChecksumKind kind, std::string_view text) {
  return checksum_of(kind, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}).hex;
}

TEST(Checksum, MatchesKnownValues) {
  EXPECT_EQ(hex(ChecksumKind::kXxh3_128, ""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hex(ChecksumKind::kAdler32, "Wikipedia"), "11e60398");
  EXPECT_EQ(hex(ChecksumKind::kAdler32, ""), "00000001");
  if (check_available(ChecksumKind::kBlake3).ok()) {
    EXPECT_EQ(hex(ChecksumKind::kBlake3, ""),
              "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
  }
}

TEST(Checksum, IsTheSameInOnePassOrInPieces) {
  std::vector<uint8_t> bytes(100000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * i >> 3);
  for (const ChecksumKind kind :
       {ChecksumKind::kXxh3_128, ChecksumKind::kBlake3, ChecksumKind::kAdler32}) {
    if (!check_available(kind).ok()) continue;
    for (const size_t size : {0, 1, 240, 241, 1025, 5552, 5553, 100000}) {
      const Bytes part(bytes.data(), size);
      Checksummer pieces(kind);
      for (size_t at = 0; at < size; at += 777) {
        pieces.update(part.subspan(at, std::min<size_t>(777, size - at)));
      }
      EXPECT_EQ(checksum_of(kind, part), pieces.finish()) << checksum_name(kind) << " " << size;
    }
  }
}

TEST(Checksum, RejectsInvalidHex) {
  EXPECT_TRUE(parse_checksum(ChecksumKind::kAdler32, "11e60398").ok());
  EXPECT_EQ(parse_checksum(ChecksumKind::kAdler32, "11e6").status().code(), Code::kCorruption);
  EXPECT_EQ(parse_checksum(ChecksumKind::kAdler32, "11E60398").status().code(), Code::kCorruption);
}

}  // namespace
}  // namespace deltawire::testing
