// Payloads that lie. Built by hand, byte by byte, zstd frames too: each defect has its message.
#include <gtest/gtest.h>

#include <string>

#include "codec/changes.h"
#include "codec/codec.h"
#include "codec_arrays.h"

namespace deltawire {
namespace {

using Blob = std::vector<uint8_t>;

Blob operator+(Blob a, const Blob& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Blob le(uint64_t value, size_t size) {
  Blob bytes(size);
  std::memcpy(bytes.data(), &value, size);
  return bytes;
}

// A zstd frame that stores `content` (up to 255 bytes) in one raw block and states `content_size`.
Blob zstd_frame(const Blob& content, uint64_t content_size) {
  const uint32_t block = 1 | uint32_t(content.size()) << 3;  // last, raw
  return Blob{0x28, 0xb5, 0x2f, 0xfd, 0xe0} + le(content_size, 8) + le(block, 3) + content;
}
Blob zstd_frame(const Blob& content) { return zstd_frame(content, content.size()); }

// Patches an array of `num_elements` u16 and returns what went wrong; apply and decode must agree.
std::string failure(const char* codec_name, const Blob& payload, size_t num_elements = 5) {
  const Codec& codec = *find_codec(codec_name);
  WalledBuffer data(num_elements * 2);
  const WalledBuffer copy(payload);
  const auto changes = codec.decode(layout_of(2), copy.span(), data.span(), nullptr);
  const Status status = codec.apply(layout_of(2), copy.span(), data.span(), nullptr);
  EXPECT_TRUE(data.walls_stand());
  EXPECT_EQ(status.ok(), changes.ok());
  EXPECT_EQ(status.message(), changes.status().message());
  EXPECT_TRUE(status.ok() || status.code() == Code::kCorruption);
  return status.message();
}

TEST(HostileRaw, WrongSize) {
  EXPECT_EQ(failure("raw", Blob(9)), "payload size: expected 10, got 9");
  EXPECT_EQ(failure("raw", Blob(11)), "payload size: expected 10, got 11");
  EXPECT_EQ(failure("raw", {}), "payload size: expected 10, got 0");
}

TEST(HostileIndices, Counts) {
  EXPECT_EQ(failure("indices", {0}), "change count: expected 1 to 5, got 0");
  EXPECT_EQ(failure("indices", {6}), "change count: expected 1 to 5, got 6");
  EXPECT_EQ(failure("indices", {0x81, 0}),
            "change count: expected the shortest LEB128 form, got a padded one");
  EXPECT_EQ(failure("indices", {0x81}),
            "change count: expected a LEB128 number, got the end of the payload");
  EXPECT_EQ(failure("indices", Blob(9, 0xff) + Blob{1}),
            "change count: expected 1 to 5, got 18446744073709551615");
  EXPECT_EQ(failure("indices", {1}, 0), "change count: expected 1 to 0, got 1");
}

TEST(HostileIndices, SizesAndPositions) {
  const Blob values = {7, 7, 8, 8};
  EXPECT_EQ(failure("indices", Blob{2} + le(1, 4) + le(4, 4) + values), "");
  EXPECT_EQ(failure("indices", Blob{2} + le(1, 4) + le(4, 4) + values + Blob{0}),
            "size of positions and values: expected 12, got 13");
  EXPECT_EQ(failure("indices", Blob{2} + le(1, 4) + le(4, 4) + Blob{1, 2}),
            "size of positions and values: expected 12, got 10");
  EXPECT_EQ(failure("indices", Blob{2} + le(1, 4) + le(1, 4) + values),
            "position of change 1: expected 2 to below 5, got 1");
  EXPECT_EQ(failure("indices", Blob{2} + le(3, 4) + le(1, 4) + values),
            "position of change 1: expected 4 to below 5, got 1");
  EXPECT_EQ(failure("indices", Blob{2} + le(1, 4) + le(5, 4) + values),
            "position of change 1: expected 2 to below 5, got 5");
  EXPECT_EQ(failure("indices", Blob{2} + le(0xffffffff, 4) + le(1, 4) + values),
            "position of change 0: expected 0 to below 5, got 4294967295");
}

TEST(HostileGaps, Headers) {
  EXPECT_EQ(failure("gaps", {0}), "gap width: expected 2, 4 or 8 and at most 2, got 0");
  EXPECT_EQ(failure("gaps", {3}), "gap width: expected 2, 4 or 8 and at most 2, got 3");
  EXPECT_EQ(failure("gaps", {4}), "gap width: expected 2, 4 or 8 and at most 2, got 4");
  EXPECT_EQ(failure("gaps", {8}, 65537), "gap width: expected 2, 4 or 8 and at most 4, got 8");
  EXPECT_EQ(failure("gaps", {2}),
            "change count: expected a LEB128 number, got the end of the payload");
  EXPECT_EQ(failure("gaps", {2, 0}), "change count: expected 1 to 5, got 0");
  EXPECT_EQ(failure("gaps", {2, 6}), "change count: expected 1 to 5, got 6");
}

TEST(HostileGaps, Bodies) {
  const Blob values = {7, 7, 8, 8};
  EXPECT_EQ(failure("gaps", Blob{2, 2} + le(0, 2) + le(3, 2) + values), "");
  EXPECT_EQ(failure("gaps", Blob{2, 2} + le(0, 2) + le(4, 2) + values),
            "gap of change 1: expected below 4, got 4");
  EXPECT_EQ(failure("gaps", Blob{2, 2} + le(5, 2) + le(0, 2) + values),
            "gap of change 0: expected below 5, got 5");
  EXPECT_EQ(failure("gaps", Blob{2, 2} + le(4, 2) + le(0, 2) + values),
            "gap of change 1: expected below 0, got 0");
  EXPECT_EQ(failure("gaps", Blob{2, 2} + le(0, 2) + le(3, 2) + values + Blob{0}),
            "size of gaps and values: expected 8, got 9");
  EXPECT_EQ(failure("gaps", Blob{2, 2} + le(0, 2) + le(3, 2)),
            "size of gaps and values: expected 8, got 4");
  EXPECT_EQ(failure("gaps", Blob{4, 1} + le(0x10000, 4) + Blob{1, 1}, 65537), "");
  EXPECT_EQ(failure("gaps", Blob{4, 1} + le(0xffffffff, 4) + Blob{1, 1}, 65537),
            "gap of change 0: expected below 65537, got 4294967295");
}

TEST(HostileGapsZstd, Frames) {
  const Blob body = le(0, 2) + le(3, 2) + Blob{7, 7, 8, 8};
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + zstd_frame(body)), "");
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 1} + zstd_frame(body)),
            "zstd content size: expected 4, got 8");
  // A forged size is refused before anything is allocated for it.
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + zstd_frame(body, uint64_t{1} << 40)),
            "zstd content size: expected 8, got 1099511627776");
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2}),
            "zstd frame: expected the magic number 0xfd2fb528, got something else");
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + zstd_frame(body) + Blob{0}),
            "zstd frame size: expected 25, got 24");
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + zstd_frame(le(0, 2) + le(4, 2) + Blob(4))),
            "gap of change 1: expected below 4, got 4");
}

// What zstd itself would take, or try to take, and a payload may not hold.
TEST(HostileZstd, OnlyOneOrdinaryFrameWithItsContentSize) {
  const Blob body = le(0, 2) + le(3, 2) + Blob{7, 7, 8, 8};
  const std::string no_magic =
      "zstd frame: expected the magic number 0xfd2fb528, got something else";
  const Blob skippable = Blob{0x50, 0x2a, 0x4d, 0x18} + le(4, 4) + Blob(4);
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + skippable), no_magic);
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + skippable + zstd_frame(body)), no_magic);
  Blob legacy = zstd_frame(body);
  legacy[0] = 0x27;  // zstd 0.7
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + legacy), no_magic);
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + zstd_frame(body) + skippable),
            "zstd frame size: expected 36, got 24");
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + zstd_frame(Blob(4), 8) + zstd_frame(Blob(4), 0)),
            "zstd frame size: expected 40, got 20");
  const Blob unsized =
      Blob{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58} + le(1 | body.size() << 3, 3) + body;
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + unsized),
            "zstd content size: expected a number, got none");
  const Blob with_dictionary =
      Blob{0x28, 0xb5, 0x2f, 0xfd, 0x21, 9, 8} + le(1 | body.size() << 3, 3) + body;
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + with_dictionary),
            "zstd frame: expected valid data, got Dictionary mismatch");
}

// An RLE block turns four bytes into 128 KiB. The frame says 8 bytes, so 8 bytes are allocated.
TEST(HostileZstd, BombsStopAtTheStatedSize) {
  Blob bomb = {0x28, 0xb5, 0x2f, 0xfd, 0xe0};
  bomb = bomb + le(8, 8);
  for (int i = 0; i < 1000; ++i)
    bomb = bomb + le(uint32_t(i == 999) | 1 << 1 | 0x1ffff << 3, 3) + Blob{0};
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + bomb).substr(0, 31),
            "zstd frame: expected valid data");
  // Less than stated is no better: the rest of the buffer would be whatever was there.
  EXPECT_EQ(failure("gaps-zstd", Blob{2, 2} + zstd_frame(Blob(4), 8)).substr(0, 5), "zstd ");
}

TEST(HostileFrames, Directories) {
  const Blob frame = zstd_frame(Blob(10, 1));
  const auto length = uint8_t(frame.size());
  EXPECT_EQ(failure("xor-zstd", Blob{length} + frame), "");
  EXPECT_EQ(failure("xor-zstd", {0}), "frames: expected at least 1, got 0");
  EXPECT_EQ(failure("xor-zstd", Blob{length} + frame + Blob{0}),
            "bytes after the last frame: expected 0, got 1");
  EXPECT_EQ(failure("xor-zstd", Blob{uint8_t(length + 1)} + frame),
            "length of frame 0: expected at most 26, got 27");
  EXPECT_EQ(failure("xor-zstd", Blob{uint8_t(length - 1)} + frame),
            "bytes after the last frame: expected 0, got 1");
  EXPECT_EQ(failure("xor-zstd", {0x80}),
            "length of frame 0: expected a LEB128 number, got the end of the payload");
  EXPECT_EQ(failure("xor-zstd", Blob(9, 0xff) + Blob{1}),
            "length of frame 0: expected at most 0, got 18446744073709551615");
  EXPECT_EQ(failure("xor-zstd", {1}, 0), "bytes after the last frame: expected 0, got 1");
}

TEST(HostileFrames, XorContentMustBeAsLongAsItsChunk) {
  const auto message = [](const Blob& frame) {
    return failure("xor-zstd", Blob{uint8_t(frame.size())} + frame);
  };
  EXPECT_EQ(message(zstd_frame(Blob(9))), "frame 0: zstd content size: expected 10, got 9");
  EXPECT_EQ(message(zstd_frame(Blob(11))), "frame 0: zstd content size: expected 10, got 11");
  EXPECT_EQ(message(zstd_frame(Blob(10), uint64_t{1} << 50)),
            "frame 0: zstd content size: expected 10, got 1125899906842624");
  EXPECT_EQ(message(Blob(4)),
            "frame 0: zstd frame: expected the magic number 0xfd2fb528, got something else");
}

TEST(HostileFrames, OverwriteContent) {
  const auto message = [](const Blob& content, uint64_t stated = 0) {
    const Blob frame = zstd_frame(content, stated == 0 ? content.size() : stated);
    return failure("overwrite-zstd", Blob{uint8_t(frame.size())} + frame);
  };
  const Blob values = {7, 7, 8, 8};
  const std::string bad_size =
      "frame 0: zstd content size: expected 4 + a multiple of 6 and at most 34, got ";
  EXPECT_EQ(message(le(2, 4) + le(0, 4) + le(4, 4) + values), "");
  EXPECT_EQ(message(le(2, 4) + le(0, 4) + le(4, 4) + Blob{7}), bad_size + "13");
  EXPECT_EQ(message(le(0, 4)), bad_size + "4");
  EXPECT_EQ(message(Blob(40)), bad_size + "40");
  EXPECT_EQ(message(Blob(3)), bad_size + "3");
  EXPECT_EQ(message(Blob(10), ~uint64_t{0} - 5), bad_size + "18446744073709551610");
  EXPECT_EQ(message(le(1, 4) + le(0, 4) + le(4, 4) + values),
            "frame 0: change count: expected 2, got 1");
  EXPECT_EQ(message(le(0xffffffff, 4) + le(0, 4) + le(4, 4) + values),
            "frame 0: change count: expected 2, got 4294967295");
  EXPECT_EQ(message(le(2, 4) + le(0, 4) + le(5, 4) + values),
            "frame 0: position of change 1: expected 1 to below 5, got 5");
  EXPECT_EQ(message(le(2, 4) + le(3, 4) + le(3, 4) + values),
            "frame 0: position of change 1: expected 4 to below 5, got 3");
}

// Applies and decodes a damaged payload. Whatever happens must happen inside the array, on both
// ways alike, and an error must be Corruption. Returns whether the damage was noticed.
bool notices(const Codec& codec, unsigned width, Bytes payload, Bytes old_bytes) {
  WalledBuffer patched(old_bytes);
  const Blob copy(payload.begin(), payload.end());  // a heap block that ends where the payload does
  const Status status = codec.apply(layout_of(width), copy, patched.span(), nullptr);
  const auto changes = codec.decode(layout_of(width), copy, old_bytes, nullptr);
  EXPECT_TRUE(patched.walls_stand());
  EXPECT_EQ(status.ok(), changes.ok()) << status.to_string() << changes.status().to_string();
  if (!status.ok()) {
    EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
    EXPECT_FALSE(status.message().empty());
    return true;
  }
  if (!changes.ok()) return true;
  WalledBuffer scattered(old_bytes);
  EXPECT_TRUE(scatter_changes(width, *changes, scattered.span(), nullptr).ok());
  EXPECT_TRUE(same_bytes(patched.span(), scattered.span()));
  return false;
}

TEST(DamagedPayloads, TruncatedAtEveryByte) {
  for (const Codec* codec : all_codecs()) {
    for (const unsigned width : {1U, 2U, 8U}) {
      const ArrayPair pair = make_arrays(width, 300, 0.1, 11);
      const auto encoded =
          codec->encode(layout_of(width), pair.old_bytes.span(), pair.new_bytes.span(), nullptr);
      ASSERT_TRUE(encoded.ok());
      for (size_t size = 1; size < encoded->payload.size(); ++size) {
        const bool noticed =
            notices(*codec, width, Bytes(encoded->payload).first(size), pair.old_bytes.span());
        EXPECT_TRUE(noticed) << codec->name() << ", width " << width << ", " << size << " of "
                             << encoded->payload.size() << " bytes";
      }
    }
  }
}

TEST(DamagedPayloads, OneByteTooMany) {
  for (const Codec* codec : all_codecs()) {
    const ArrayPair pair = make_arrays(2, 300, 0.1, 11);
    auto encoded =
        codec->encode(layout_of(2), pair.old_bytes.span(), pair.new_bytes.span(), nullptr);
    ASSERT_TRUE(encoded.ok());
    for (const uint8_t byte : {0x00, 0x01, 0x80, 0xff}) {
      Blob payload = encoded->payload;
      payload.push_back(byte);
      EXPECT_TRUE(notices(*codec, 2, payload, pair.old_bytes.span())) << codec->name();
    }
  }
}

TEST(DamagedPayloads, EveryBitFlipped) {
  for (const Codec* codec : all_codecs()) {
    for (const unsigned width : {1U, 2U, 4U}) {
      const ArrayPair pair = make_arrays(width, 200, 0.1, 12);
      auto encoded =
          codec->encode(layout_of(width), pair.old_bytes.span(), pair.new_bytes.span(), nullptr);
      ASSERT_TRUE(encoded.ok());
      for (size_t bit = 0; bit < encoded->payload.size() * 8; ++bit) {
        encoded->payload[bit / 8] ^= uint8_t(1 << bit % 8);
        notices(*codec, width, encoded->payload, pair.old_bytes.span());
        encoded->payload[bit / 8] ^= uint8_t(1 << bit % 8);
      }
    }
  }
}

// Damage deep in a payload of many blocks, with threads: the same verdict as without.
TEST(DamagedPayloads, SameVerdictOnAnyNumberOfThreads) {
  ThreadPool pool(4);
  Random random(13);
  const ArrayPair pair = make_arrays(2, 600'000, 0.5, 13);
  for (const Codec* codec : all_codecs()) {
    const auto encoded =
        codec->encode(layout_of(2), pair.old_bytes.span(), pair.new_bytes.span(), &pool);
    ASSERT_TRUE(encoded.ok());
    for (int round = 0; round < 8; ++round) {
      Blob payload = encoded->payload;
      for (int i = 0; i < 3; ++i) payload[random() % payload.size()] ^= uint8_t(1 + random() % 255);
      WalledBuffer alone(pair.old_bytes.span()), together(pair.old_bytes.span());
      const Status a = codec->apply(layout_of(2), payload, alone.span(), nullptr);
      const Status b = codec->apply(layout_of(2), payload, together.span(), &pool);
      EXPECT_EQ(a.to_string(), b.to_string()) << codec->name();
      EXPECT_TRUE(together.walls_stand());
      EXPECT_TRUE(!a.ok() || same_bytes(alone.span(), together.span()));
    }
  }
}

}  // namespace
}  // namespace deltawire
