// Digests on a device against the CPU's.
#include "cuda/contexts.h"

namespace deltawire::cuda {
namespace {

class DeviceDigest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

// Arrays of bytes and what they should hash to.
struct Hashed {
  std::vector<OnDevice> on_device;
  std::vector<Contents> contents;
  std::vector<std::vector<uint8_t>> bytes;

  void add(std::vector<uint8_t> given, size_t skew = 0) {
    on_device.emplace_back(given, skew);
    contents.push_back({{DType::kU8, on_device.back().data()}, DType::kU8, given.size()});
    bytes.push_back(std::move(given));
  }
  void add(WideFloats floats, size_t skew = 0) {
    on_device.emplace_back(floats.wide, skew);
    contents.push_back(
        {{floats.dtype, on_device.back().data()}, DType::kBF16, floats.rounded.size()});
    bytes.push_back(std::move(floats.rounded));
  }
  // Of the kinds that are computed on the device.
  void expect_digests(Context& context) const {
    for (const DigestKind kind : {DigestKind::kXxh3_128, DigestKind::kSum128}) {
      expect_digests(context, kind);
    }
  }
  void expect_digests(Context& context, DigestKind kind) const {
    const auto digests = context.digests(kind, contents, nullptr);
    ASSERT_TRUE(digests.ok()) << digests.status().to_string();
    for (size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ((*digests)[i].hex(), digest_of(kind, bytes[i]).hex())
          << digest_name(kind) << ", array " << i << " of " << bytes[i].size() << " bytes";
    }
  }
};

std::vector<uint8_t> noise(uint64_t seed, size_t size) {
  return make_pair(seed, 1, size, 0, Content::kNoise).old_bytes;
}

constexpr size_t kSizes[] = {0,     1,     2,      63,      64,      65,           128,   239,
                             240,   241,   1023,   1024,    1025,    1088,         2047,  2048,
                             2049,  4096,  8191,   8193,    9215,    9217,         33000, 65535,
                             65536, 65537, 300001, 1 << 20, 3 << 20, (5 << 20) + 7};

TEST_F(DeviceDigest, EverySize) {
  Context context = make_context();
  Hashed hashed;
  for (const size_t size : kSizes) hashed.add(noise(size, size));
  hashed.expect_digests(context);
  Hashed alone;
  alone.add(noise(5, 12'345'678));
  alone.expect_digests(context);
}

TEST_F(DeviceDigest, EveryAlignment) {
  Context context = make_context();
  for (const size_t skew : {1, 2, 4, 7, 8, 16}) {
    Hashed hashed;
    for (const size_t size : kSizes) hashed.add(noise(size, size), skew);
    hashed.expect_digests(context);
  }
}

TEST_F(DeviceDigest, ThousandsOfSmallArraysAndLargeOnesBetween) {
  Context context = make_context();
  Hashed hashed;
  for (size_t i = 0; i < 5000; ++i) {
    hashed.add(noise(i, i % 1000 == 0 ? 2'000'000 + i : i * 37 % 5000), i % 7 == 0 ? 1 : 0);
  }
  hashed.expect_digests(context);
}

TEST_F(DeviceDigest, LittleScratchMeansManyTurnsAndBatches) {
  Context context = make_context(8 * kMiB);
  Hashed hashed;
  hashed.add(noise(1, 90'000'001));
  for (size_t i = 0; i < 3000; ++i) hashed.add(noise(i, 1 + i * 61 % 9000));
  hashed.add(noise(2, 20'000'000));
  hashed.expect_digests(context);
}

TEST_F(DeviceDigest, WiderFloatsCountAsBf16) {
  Context context = make_context();
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const size_t skew : {0, 2, 16}) {
      Hashed hashed;
      for (const size_t size : kSizes) hashed.add(make_wide(size, dtype, size / 2), skew);
      hashed.expect_digests(context);
    }
  }
}

TEST_F(DeviceDigest, OtherKinds) {
  Context context = make_context();
  Hashed hashed;
  for (const size_t size : {0, 1, 240, 5000, 40'000'000}) hashed.add(noise(size, size), 1);
  hashed.add(make_wide(1, DType::kF32, 30'000));
  for (const DigestKind kind : {DigestKind::kSha256, DigestKind::kAdler32, DigestKind::kBlake3}) {
    if (digest_available(kind)) hashed.expect_digests(context, kind);
  }
}

TEST_F(DeviceDigest, MistakesAreNamed) {
  Context context = make_context();
  const Contents contents{{DType::kF64, nullptr}, DType::kBF16, 0};
  const Status status = context.digests(DigestKind::kXxh3_128, {&contents, 1}, nullptr).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(mentions(status, "array 0")) << status.to_string();
}

}  // namespace
}  // namespace deltawire::cuda
