#include "deltawire/digest.h"

#include "test_files.h"

namespace deltawire::testing {
namespace {

std::string hex(DigestKind kind, std::string_view text) {
  Hasher hasher(kind);
  hasher.update(text);
  return hasher.finish().hex();
}

TEST(Digest, KnownValues) {
  EXPECT_EQ(hex(DigestKind::kXxh3_128, ""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hex(DigestKind::kSha256, "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, InOneGoOrInPieces) {
  std::vector<uint8_t> bytes(100000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * i >> 3);
  for (const DigestKind kind : {DigestKind::kXxh3_128, DigestKind::kSha256, DigestKind::kSum128}) {
    for (const size_t size : {0, 1, 16, 17, 128, 129, 240, 241, 1024, 1025, 65535, 100000}) {
      const std::span<const uint8_t> part(bytes.data(), size_t(size));
      Hasher pieces(kind);
      for (size_t at = 0; at < part.size(); at += 777)
        pieces.update(part.subspan(at, std::min<size_t>(777, part.size() - at)));
      EXPECT_EQ(digest_of(kind, part), pieces.finish()) << digest_name(kind) << " " << size;
    }
  }
}

TEST(Digest, HexIsReadBackAndChecked) {
  const Digest digest = digest_of(DigestKind::kXxh3_128, {});
  EXPECT_EQ(parse_digest(DigestKind::kXxh3_128, digest.hex()).value(), digest);
  EXPECT_EQ(parse_digest(DigestKind::kXxh3_128, "99aa").status().code(), Code::kCorruption);
  EXPECT_EQ(parse_digest(DigestKind::kXxh3_128, std::string(32, 'G')).status().code(),
            Code::kCorruption);
}

}  // namespace
}  // namespace deltawire::testing
