// Codecs on a GPU compared with the CPU's: the same bytes out, the same weights in.
#include "codec/cuda/workspace.h"
#include "cuda/device_arrays.h"

namespace deltawire::cuda {
namespace {

constexpr CodecId kCodecs[] = {CodecId::kGaps, CodecId::kTight};

std::string name_of(CodecId codec) { return std::string(find_codec(codec)->name()); }

// Encodes a batch on the device, compares with the CPU, applies on the device, compares again.
void expect_same(CodecId codec, const DeviceBatch& batch, DeviceOptions options = {}) {
  const auto encoded = encode(codec, batch.pairs, options, nullptr);
  ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
  std::vector<DevicePatch> patches;
  for (size_t i = 0; i < batch.pairs.size(); ++i) {
    const HostPair& host = batch.host[i];
    const Encoded expected = encode_on_cpu(codec, host);
    const std::string what = name_of(codec) + ", array " + std::to_string(i) + ", width " +
                             std::to_string(host.width) + ", " +
                             std::to_string(batch.pairs[i].num_elements) + " elements";
    EXPECT_EQ((*encoded)[i].num_changed, expected.num_changed) << what;
    ASSERT_EQ((*encoded)[i].payload.size(), expected.payload.size()) << what;
    ASSERT_TRUE((*encoded)[i].payload == expected.payload) << what;
    patches.push_back({batch.pairs[i].layout, const_cast<void*>(batch.pairs[i].old_data),
                       batch.pairs[i].num_elements, codec, (*encoded)[i].payload});
  }
  ASSERT_GOOD(apply(patches, options, nullptr));
  for (size_t i = 0; i < batch.pairs.size(); ++i) {
    ASSERT_TRUE(batch.old_arrays[i].fetch() == batch.host[i].new_bytes)
        << name_of(codec) << ", array " << i;
  }
}

class DeviceCodec : public ::testing::TestWithParam<CodecId> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

TEST_P(DeviceCodec, EveryWidthAndManySizes) {
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    DeviceBatch batch;
    for (const size_t n : {1, 7, 31, 33, 1000, 1023, 1025, 4096, 16383, 16385, 65537, 262143,
                           262144, 262145, 524288, 600001}) {
      batch.add(make_pair(n, width, n, 0.012));
    }
    expect_same(GetParam(), batch);
  }
}

TEST_P(DeviceCodec, EveryDensity) {
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    DeviceBatch batch;
    uint64_t seed = 100;
    for (const double density : {0.0, 0.00001, 0.001, 0.05, 0.3, 0.9, 1.0}) {
      batch.add(make_pair(++seed, width, 700'000, density));
    }
    expect_same(GetParam(), batch);
  }
}

TEST_P(DeviceCodec, ArbitraryBits) {
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    DeviceBatch batch;
    batch.add(make_pair(1, width, 900'000, 0.02, Content::kNoise));
    batch.add(make_pair(2, width, 300'000, 1.0, Content::kNoise));
    expect_same(GetParam(), batch);
  }
}

TEST_P(DeviceCodec, EveryWidthWithTrainingSteps) {
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    DeviceBatch batch;
    for (const size_t n : {5000, 262144, 300'001}) {
      for (const double density : {0.001, 0.04, 0.5}) {
        batch.add(make_trained_pair(n, width, n, density), n == 262144 ? 3 : 0);
      }
    }
    expect_same(GetParam(), batch);
  }
}

// Small enough for tools that track every memory access.
TEST_P(DeviceCodec, SmallTrainingStep) {
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    DeviceBatch batch;
    batch.add(make_trained_pair(3, width, 270'001, 0.04));
    expect_same(GetParam(), batch);
  }
}

TEST_P(DeviceCodec, AnyAlignment) {
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    DeviceBatch batch;
    for (const size_t skew : {1, 2, 4, 7, 8}) {
      batch.add(make_pair(skew, width, 530'000, 0.012), skew);
    }
    expect_same(GetParam(), batch);
  }
}

TEST_P(DeviceCodec, ThousandsOfSmallArrays) {
  DeviceBatch batch;
  for (size_t i = 0; i < 3000; ++i) batch.add(make_pair(i, 2, 1 + i * 37 % 5000, 0.01));
  for (size_t i = 0; i < 40; ++i) batch.add(make_pair(i, 2, 263'000 + i * 37, 0.01));
  expect_same(GetParam(), batch);
}

TEST_P(DeviceCodec, LittleScratchMeansManyBatches) {
  DeviceBatch batch;
  for (size_t i = 0; i < 6; ++i) batch.add(make_pair(i, 2, 3'000'000, 0.02));
  for (size_t i = 0; i < 3; ++i) batch.add(make_trained_pair(i, 2, 3'000'000, 0.04));
  DeviceOptions options;
  options.scratch_bytes = size_t{4} << 20;
  expect_same(GetParam(), batch, options);
}

TEST_P(DeviceCodec, ScratchOfAnySize) {
  for (const size_t mib : {7, 13, 29}) {
    DeviceBatch batch;
    for (size_t i = 0; i < 4; ++i) batch.add(make_pair(i, 2, 1'500'000, 0.3));
    DeviceOptions options;
    options.scratch_bytes = (mib << 20) + 12345;
    expect_same(GetParam(), batch, options);
  }
}

TEST_P(DeviceCodec, ManyThreadsAndAReusedWorkspace) {
  ThreadPool pool(4);
  Workspace workspace;
  DeviceOptions options;
  options.scratch_bytes = size_t{3} << 20;
  options.pool = &pool;
  options.workspace = &workspace;
  for (const double density : {0.02, 0.001}) {
    DeviceBatch batch;
    batch.add(make_pair(1, 2, 9'000'000, density));  // waits for many turns to be complete
    for (size_t i = 0; i < 9; ++i) batch.add(make_pair(i, 2, 1000 + i * 150'000, density));
    expect_same(GetParam(), batch, options);
  }
}

TEST_P(DeviceCodec, OneChangeAtAnyBoundary) {
  DeviceBatch batch;
  for (const size_t at : {size_t{0}, size_t{262143}, size_t{262144}, size_t{999'999}}) {
    HostPair pair = make_pair(at, 2, 1'000'000, 0);
    pair.new_bytes[2 * at] ^= 1;
    batch.add(std::move(pair));
  }
  expect_same(GetParam(), batch);
}

TEST_P(DeviceCodec, ComparesWiderFloatsAsBf16) {
  for (const NewKind kind : {NewKind::kF32AsBf16, NewKind::kF16AsBf16}) {
    for (const size_t n : {5000, 300'000, 800'003}) {
      Random random(n);
      const size_t bytes = kind == NewKind::kF32AsBf16 ? 4 : 2;
      HostPair pair{2, std::vector<uint8_t>(n * 2), std::vector<uint8_t>(n * 2)};
      std::vector<uint8_t> wide(n * bytes);
      for (size_t i = 0; i < n; ++i) {
        // Mostly weights, sometimes arbitrary bits: NaNs, infinities, denormals.
        uint32_t f32 = uint32_t(make_value(random, 4, Content::kWeights));
        uint32_t value = bytes == 4 ? f32 : uint32_t(0x2000 + (random() & 0x8fff));
        if (random() % 50 == 0) value = uint32_t(random() >> (64 - 8 * bytes));
        f32 = bytes == 4 ? value : f32_of_f16(value);
        const uint16_t rounded = uint16_t(bf16_of_f32(f32));
        const uint16_t old_value = random() % 80 == 0 ? uint16_t(rounded + 1) : rounded;
        std::memcpy(wide.data() + i * bytes, &value, bytes);
        std::memcpy(pair.old_bytes.data() + i * 2, &old_value, 2);
        std::memcpy(pair.new_bytes.data() + i * 2, &rounded, 2);
      }
      const OnDevice old_array(pair.old_bytes), new_array(wide);
      const DevicePair on_device{layout_of(2), old_array.data(), new_array.data(), n, kind};
      const auto encoded = encode(GetParam(), {&on_device, 1}, {}, nullptr);
      ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
      EXPECT_TRUE((*encoded)[0].payload == encode_on_cpu(GetParam(), pair).payload) << n;
    }
  }
}

TEST_P(DeviceCodec, DamagedPayloadWritesNothing) {
  // The last of three is damaged: the others must stay unchanged, too.
  DeviceBatch batch;
  for (uint64_t i = 0; i < 3; ++i) batch.add(make_pair(i, 2, 540'000, 0.003));
  const std::vector<DeviceEncoded> encoded = good(encode(GetParam(), batch.pairs, {}, nullptr));
  ASSERT_EQ(encoded.size(), 3);
  Random random(7);
  size_t refused = 0;
  const size_t rounds = 300;
  for (size_t round = 0; round < rounds; ++round) {
    std::vector<uint8_t> damaged = encoded[2].payload;
    if (round % 10 == 0) {
      damaged.resize(random() % damaged.size());
    } else {
      for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
        damaged[random() % damaged.size()] ^= uint8_t(1 << random() % 8);
      }
    }
    std::vector<DevicePatch> patches;
    for (size_t i = 0; i < 3; ++i) {
      patches.push_back({batch.pairs[i].layout, batch.old_arrays[i].data(),
                         batch.pairs[i].num_elements, GetParam(),
                         i == 2 ? Bytes(damaged) : Bytes(encoded[i].payload)});
    }
    // The CPU decides which damage is detectable.
    std::vector<uint8_t> expected = batch.host[2].old_bytes;
    const Status judged = find_codec(GetParam())->apply(layout_of(2), damaged, expected, nullptr);
    const Status status = apply(patches, {}, nullptr);
    ASSERT_EQ(status.ok(), judged.ok()) << status.to_string() << " / " << judged.to_string();
    if (!status.ok()) {
      ++refused;
      EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
      EXPECT_NE(status.message().find("patch 2"), std::string::npos) << status.to_string();
      for (size_t i = 0; i < 3; ++i) {
        ASSERT_TRUE(batch.old_arrays[i].fetch() == batch.host[i].old_bytes) << "array " << i;
      }
      continue;
    }
    ASSERT_TRUE(batch.old_arrays[2].fetch() == expected);
    for (size_t i = 0; i < 3; ++i) {
      batch.old_arrays[i] = OnDevice(batch.host[i].old_bytes);
    }
  }
  EXPECT_GT(refused, rounds / 20) << "damage was hardly ever seen";
}

TEST_P(DeviceCodec, ReportsAPartialApplyWithoutAllOrNothing) {
  DeviceBatch batch;
  for (uint64_t i = 0; i < 2; ++i) batch.add(make_pair(i, 2, 540'000, 0.003));
  std::vector<DeviceEncoded> encoded = good(encode(GetParam(), batch.pairs, {}, nullptr));
  encoded[1].payload.resize(encoded[1].payload.size() - 1);
  std::vector<DevicePatch> patches;
  for (size_t i = 0; i < 2; ++i) {
    patches.push_back({batch.pairs[i].layout, batch.old_arrays[i].data(),
                       batch.pairs[i].num_elements, GetParam(), encoded[i].payload});
  }
  DeviceOptions options;
  options.all_or_nothing = false;
  const Status status = apply(patches, options, nullptr);
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_NE(status.message().find("patch 1"), std::string::npos) << status.to_string();
  EXPECT_NE(status.message().find("in part"), std::string::npos) << status.to_string();
}

TEST_P(DeviceCodec, SeveralWidthsAreAllOrNothing) {
  DeviceBatch batch;
  for (const unsigned width : {1U, 2U, 4U, 8U}) batch.add(make_pair(width, width, 300'000, 0.01));
  std::vector<DeviceEncoded> encoded = good(encode(GetParam(), batch.pairs, {}, nullptr));
  encoded[3].payload.resize(encoded[3].payload.size() - 1);
  std::vector<DevicePatch> patches;
  for (size_t i = 0; i < 4; ++i) {
    patches.push_back({batch.pairs[i].layout, batch.old_arrays[i].data(),
                       batch.pairs[i].num_elements, GetParam(), encoded[i].payload});
  }
  EXPECT_EQ(apply(patches, {}, nullptr).code(), Code::kCorruption);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(batch.old_arrays[i].fetch() == batch.host[i].old_bytes) << "array " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceCodec, ::testing::ValuesIn(kCodecs),
                         [](const auto& param) { return name_of(param.param); });

// The tests above need blocks with and without unit steps, and mixed classes within a block.
TEST(DeviceCodecTest, DistinguishesBlocksWithUnitSteps) {
  const auto kinds_of = [](HostPair pair) {
    const Encoded encoded = encode_on_cpu(CodecId::kTight, pair);
    return good(
        count_block_kinds({layout_of(pair.width), nullptr, pair.old_bytes.size() / pair.width,
                           CodecId::kTight, encoded.payload}));
  };
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    const BlockKinds trained = kinds_of(make_trained_pair(1, width, 1'000'001, 0.04));
    EXPECT_EQ(trained.num_blocks, 4);
    EXPECT_EQ(trained.num_coded, 4);
    EXPECT_GT(trained.num_mixed, 0) << width;
    HostPair pair = make_pair(1, width, 1'000'001, 0);
    for (size_t i = 0; i < pair.new_bytes.size(); i += 300 * width) pair.new_bytes[i] ^= 1;
    const BlockKinds units = kinds_of(std::move(pair));
    EXPECT_EQ(units.num_blocks, 4);
    EXPECT_EQ(units.num_coded, 0);
  }
}

TEST(DeviceCodecTest, RejectsOtherCodecsByName) {
  SKIP_WITHOUT_GPU();
  const Status status = encode(CodecId::kRaw, {}, {}, nullptr).status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("codec raw"), std::string::npos) << status.to_string();
}

TEST(DeviceCodecTest, ReportsAMissingGpu) {
  const Status status = check_device();
  if (status.ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(status.code(), Code::kDevice) << status.to_string();
}

TEST(Bf16Test, ConvertsHalvesToTheSameFloats) {
  EXPECT_EQ(f32_of_f16(0x3c00), std::bit_cast<uint32_t>(1.0F));
  EXPECT_EQ(f32_of_f16(0x0001), std::bit_cast<uint32_t>(0x1p-24F));
  EXPECT_EQ(f32_of_f16(0x83ff), std::bit_cast<uint32_t>(-0x1.ff8p-15F));
  EXPECT_EQ(f32_of_f16(0x7bff), std::bit_cast<uint32_t>(65504.0F));
  EXPECT_EQ(f32_of_f16(0xfc00), 0xff800000U);
  EXPECT_EQ(bf16_of_f32(0x3f808000), 0x3f80U);  // ties go to even
  EXPECT_EQ(bf16_of_f32(0x3f818000), 0x3f82U);
  EXPECT_EQ(bf16_of_f32(0x7f7fffff), 0x7f80U);
  EXPECT_EQ(bf16_of_f32(0xff800001), 0x7fc0U);
}

}  // namespace
}  // namespace deltawire::cuda
