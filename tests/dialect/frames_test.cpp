// Zstd frames that lie, built by hand.
#include "dialect/frames/zstd_frame.h"

#include "dialect/checksum.h"
#include "support/blob.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

using testing::operator+;

// Stores `content` (up to 255 bytes) in one raw block and states `content_size`.
Blob zstd_frame(const Blob& content, uint64_t content_size) {
  const uint32_t block = 1 | uint32_t(content.size()) << 3;  // last, raw
  return Blob{0x28, 0xb5, 0x2f, 0xfd, 0xe0} + le(content_size, 8) + le(block, 3) + content;
}
Blob zstd_frame(const Blob& content) { return zstd_frame(content, content.size()); }

// What is wrong with a frame that should hold eight bytes.
std::string failure(const Blob& frame) {
  const Result<uint64_t> size = zstd_content_size(frame);
  if (!size.ok()) return size.status().message();
  if (*size != 8) return "states " + std::to_string(*size);
  Blob content(8);
  return ZstdDecompressor().decompress(frame, content).message();
}

// What zstd itself would take, or try to take, and a file may not hold.
TEST(ZstdFrame, OnlyOneOrdinaryFrameWithItsContentSize) {
  const Blob body = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::string no_magic =
      "zstd frame: expected the magic number 0xfd2fb528, got something else";
  EXPECT_EQ(failure(zstd_frame(body)), "");
  EXPECT_EQ(failure({}), no_magic);
  // A forged size is seen before anything is allocated for it.
  EXPECT_EQ(failure(zstd_frame(body, uint64_t{1} << 40)), "states 1099511627776");
  EXPECT_EQ(failure(zstd_frame(body) + Blob{0}), "zstd frame size: expected 25, got 24");
  const Blob skippable = Blob{0x50, 0x2a, 0x4d, 0x18} + le(4, 4) + Blob(4);
  EXPECT_EQ(failure(skippable), no_magic);
  EXPECT_EQ(failure(skippable + zstd_frame(body)), no_magic);
  Blob legacy = zstd_frame(body);
  legacy[0] = 0x27;  // zstd 0.7
  EXPECT_EQ(failure(legacy), no_magic);
  EXPECT_EQ(failure(zstd_frame(body) + skippable), "zstd frame size: expected 36, got 24");
  EXPECT_EQ(failure(zstd_frame(Blob(4), 8) + zstd_frame(Blob(4), 0)),
            "zstd frame size: expected 40, got 20");
  const Blob unsized =
      Blob{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58} + le(1 | body.size() << 3, 3) + body;
  EXPECT_EQ(failure(unsized), "zstd content size: expected a number, got none");
  const Blob with_dictionary =
      Blob{0x28, 0xb5, 0x2f, 0xfd, 0x21, 9, 8} + le(1 | body.size() << 3, 3) + body;
  EXPECT_EQ(failure(with_dictionary), "zstd frame: expected valid data, got Dictionary mismatch");
}

// An RLE block turns four bytes into 128 KiB. The frame says 8 bytes, so 8 bytes are allocated.
TEST(ZstdFrame, BombsStopAtTheStatedSize) {
  Blob bomb = Blob{0x28, 0xb5, 0x2f, 0xfd, 0xe0} + le(8, 8);
  for (int i = 0; i < 1000; ++i) {
    bomb = bomb + le(uint32_t(i == 999) | 1 << 1 | 0x1ffff << 3, 3) + Blob{0};
  }
  EXPECT_EQ(failure(bomb).substr(0, 31), "zstd frame: expected valid data");
  // Less than stated is no better: the rest of the buffer would be whatever was there.
  EXPECT_EQ(failure(zstd_frame(Blob(4), 8)).substr(0, 5), "zstd ");
}

std::string hex(ChecksumKind kind, std::string_view text) {
  return checksum_of(kind, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}).hex;
}

TEST(Checksum, KnownValues) {
  EXPECT_EQ(hex(ChecksumKind::kXxh3_128, ""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hex(ChecksumKind::kAdler32, "Wikipedia"), "11e60398");
  EXPECT_EQ(hex(ChecksumKind::kAdler32, ""), "00000001");
  if (check_available(ChecksumKind::kBlake3).ok()) {
    EXPECT_EQ(hex(ChecksumKind::kBlake3, ""),
              "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
  }
}

TEST(Checksum, InOneGoOrInPieces) {
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

TEST(Checksum, HexIsChecked) {
  EXPECT_TRUE(parse_checksum(ChecksumKind::kAdler32, "11e60398").ok());
  EXPECT_EQ(parse_checksum(ChecksumKind::kAdler32, "11e6").status().code(), Code::kCorruption);
  EXPECT_EQ(parse_checksum(ChecksumKind::kAdler32, "11E60398").status().code(), Code::kCorruption);
}

}  // namespace
}  // namespace deltawire::testing
