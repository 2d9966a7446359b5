// Hostile payloads, built by hand byte by byte: each defect has its message.
#include <gtest/gtest.h>

#include <string>

#include "codec/changes.h"
#include "codec/codec.h"
#include "codec_arrays.h"
#include "support/blob.h"

namespace deltawire::testing {
namespace {

using testing::operator+;

// Patches an array of `num_elements` u16 and returns the error; apply and decode must agree.
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

TEST(HostileRaw, RejectsWrongSizes) {
  EXPECT_EQ(failure("raw", Blob(9)), "payload size: expected 10, got 9");
  EXPECT_EQ(failure("raw", Blob(11)), "payload size: expected 10, got 11");
  EXPECT_EQ(failure("raw", {}), "payload size: expected 10, got 0");
}

TEST(HostileGaps, RejectsBadHeaders) {
  EXPECT_EQ(failure("gaps", {0}), "gap width: expected 2, 4 or 8 and at most 2, got 0");
  EXPECT_EQ(failure("gaps", {3}), "gap width: expected 2, 4 or 8 and at most 2, got 3");
  EXPECT_EQ(failure("gaps", {4}), "gap width: expected 2, 4 or 8 and at most 2, got 4");
  EXPECT_EQ(failure("gaps", {8}, 65537), "gap width: expected 2, 4 or 8 and at most 4, got 8");
  EXPECT_EQ(failure("gaps", {2}),
            "change count: expected a LEB128 number, got the end of the payload");
  EXPECT_EQ(failure("gaps", {2, 0}), "change count: expected 1 to 5, got 0");
  EXPECT_EQ(failure("gaps", {2, 6}), "change count: expected 1 to 5, got 6");
  EXPECT_EQ(failure("gaps", {2, 0x81, 0}),
            "change count: expected the shortest LEB128 form, got a padded one");
  EXPECT_EQ(failure("gaps", Blob{2} + Blob(9, 0xff) + Blob{1}),
            "change count: expected 1 to 5, got 18446744073709551615");
  EXPECT_EQ(failure("gaps", {2, 1}, 0), "change count: expected 1 to 0, got 1");
}

TEST(HostileGaps, RejectsBadBodies) {
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

// Applies and decodes a damaged payload: both must stay within the array and agree, and an error
// must be Corruption. Returns whether the damage was detected.
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

TEST(DamagedPayloads, EveryTruncationIsDetected) {
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

TEST(DamagedPayloads, DetectsAnExtraByte) {
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

TEST(DamagedPayloads, FlippedBitsNeverWriteOutOfBounds) {
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

// Damage deep in a payload of many blocks gives the same error with threads as without.
TEST(DamagedPayloads, SameErrorForAnyNumberOfThreads) {
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
}  // namespace deltawire::testing
