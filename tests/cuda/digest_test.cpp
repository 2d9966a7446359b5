// Digests on a device compared with the CPU's.
#include "cuda/contexts.h"
#include "tensor/box.h"

namespace deltawire::cuda {
namespace {

class DeviceDigest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

// Arrays of bytes and their expected digests.
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
  void expect_digests(Context& context) const {
    const auto digests = context.digests(contents, nullptr);
    ASSERT_TRUE(digests.ok()) << digests.status().to_string();
    for (size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ((*digests)[i].hex(), digest_of(DigestKind::kSum128, bytes[i]).hex())
          << "array " << i << " of " << bytes[i].size() << " bytes";
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

TEST_F(DeviceDigest, SmallAndLargeArraysMixed) {
  Context context = make_context();
  Hashed hashed;
  for (size_t i = 0; i < 5000; ++i) {
    hashed.add(noise(i, i % 1000 == 0 ? 2'000'000 + i : i * 37 % 5000), i % 7 == 0 ? 1 : 0);
  }
  hashed.expect_digests(context);
}

TEST_F(DeviceDigest, LittleScratchMeansManyBatches) {
  Context context = make_context(8 * kMiB);
  Hashed hashed;
  hashed.add(noise(1, 90'000'001));
  for (size_t i = 0; i < 3000; ++i) hashed.add(noise(i, 1 + i * 61 % 9000));
  hashed.add(noise(2, 20'000'000));
  hashed.expect_digests(context);
}

// Rows, columns, experts; inside and at the borders of segments and words.
TEST_F(DeviceDigest, BoxesAddUpToTheirTensor) {
  Context context = make_context();
  struct Case {
    DType dtype;
    Shape shape;
    std::vector<Box> boxes;  // that tile it
  };
  const std::vector<Case> cases = {
      {DType::kBF16, {96, 512}, {{{0, 0}, {32, 512}}, {{32, 0}, {64, 512}}}},
      {DType::kBF16, {96, 512}, {{{0, 0}, {96, 256}}, {{0, 256}, {96, 256}}}},
      {DType::kF32, {8, 64, 256}, {{{0, 0, 0}, {8, 64, 128}}, {{0, 0, 128}, {8, 64, 128}}}},
      {DType::kBF16, {8, 64, 256}, {{{0, 0, 0}, {8, 40, 256}}, {{0, 40, 0}, {8, 24, 256}}}},
      {DType::kBF16,
       {8, 64, 512},
       {{{0, 0, 0}, {8, 32, 256}},
        {{0, 32, 0}, {8, 32, 256}},
        {{0, 0, 256}, {4, 64, 256}},
        {{4, 0, 256}, {4, 64, 256}}}},
      {DType::kBF16, {33, 100}, {{{0, 0}, {33, 51}}, {{0, 51}, {33, 49}}}},
      {DType::kU8, {1000003}, {{{0}, {333333}}, {{333333}, {666670}}}},
      {DType::kBF16, {1 << 20}, {{{0}, {1 << 19}}, {{1 << 19}, {1 << 19}}}},
      {DType::kBF16, {4, 8}, {{{0, 0}, {0, 8}}, {{0, 0}, {4, 8}}}},
  };
  for (const Case& one : cases) {
    const std::string place = shape_to_string(one.shape);
    const uint64_t size = tensor_size_bytes(one.dtype, one.shape).value();
    const std::vector<uint8_t> tensor = noise(size, size);
    std::vector<OnDevice> memory;
    memory.reserve(one.boxes.size());
    std::vector<BoxContents> boxes;
    for (const Box& box : one.boxes) {
      std::vector<uint8_t> contents(tensor_size_bytes(one.dtype, box.extent).value());
      copy_box_out(box, one.dtype, one.shape, tensor, contents);
      memory.emplace_back(contents);
      boxes.push_back(
          {{{one.dtype, memory.back().data()}, one.dtype, contents.size()}, one.shape, box});
    }
    const auto sums = context.sums(boxes, nullptr);
    ASSERT_TRUE(sums.ok()) << place << ": " << sums.status().to_string();
    Sums all;
    for (const Sums& own : *sums) all.add(own);
    EXPECT_EQ(all.finish(size).value().hex(), digest_of(DigestKind::kSum128, tensor).hex())
        << place;
  }
  const BoxContents wrong{{{DType::kU8, nullptr}, DType::kU8, 0}, {4}, {{1}, {2}}};
  const Status refused = context.sums({&wrong, 1}, nullptr).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("array 0: 0 bytes were given"), std::string::npos)
      << refused.to_string();
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

TEST_F(DeviceDigest, ErrorsNameTheMistake) {
  Context context = make_context();
  const Contents contents{{DType::kF64, nullptr}, DType::kBF16, 0};
  const Status status = context.digests({&contents, 1}, nullptr).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(mentions(status, "array 0")) << status.to_string();
}

}  // namespace
}  // namespace deltawire::cuda
