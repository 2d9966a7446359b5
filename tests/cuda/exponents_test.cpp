// `exponents` on a GPU compared with the CPU's: the same bytes out, the same weights in, the same
// errors.
#include "codec/exponents.h"

#include "codec/cuda/exponents_encode.h"
#include "codec/cuda/workspace.h"
#include "cuda/contexts.h"

namespace deltawire::cuda {
namespace {

constexpr Layout kKeyLayouts[] = {{2, 7, 0xff}, {2, 10, 0x1f}, {4, 23, 0xff}};

// The contents of whole arrays.
enum class Filling { kNormal, kAnyBits, kZeros, kNotANumber, kManyFar, kTwoRanges };
constexpr Filling kFillings[] = {Filling::kNormal,     Filling::kAnyBits, Filling::kZeros,
                                 Filling::kNotANumber, Filling::kManyFar, Filling::kTwoRanges};

uint32_t f32_bits(Random& random, Filling filling, size_t i) {
  const auto weight = [&] { return uint32_t(make_value(random, 4, Content::kWeights)); };
  switch (filling) {
    case Filling::kNormal:
      return weight();
    case Filling::kAnyBits:
      return uint32_t(random());
    case Filling::kZeros:
      return 0;
    case Filling::kNotANumber:
      return random() % 3 == 0 ? 0xff800000U : 0x7fc00001U;
    case Filling::kManyFar:
      return i % 9 == 0 ? uint32_t(random()) : weight();
    default:  // every other group is far as a whole
      return (i / 512 % 2 == 0 ? 0x1f800000U : 0x3f800000U) + uint32_t(random() % 0x400000);
  }
}

std::vector<uint8_t> make_whole(Layout layout, size_t n, Filling filling) {
  Random random(n);
  std::vector<uint8_t> bytes(n * layout.width);
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits = f32_bits(random, filling, i);
    const bool half = layout.key_mask == 0x1f;
    if (half && filling != Filling::kAnyBits && filling != Filling::kNotANumber) {
      const int exponent = std::clamp(int(bits >> 23 & 0xff) - 112, 0, 30);
      bits = (bits >> 16 & 0x8000) | uint32_t(exponent) << 10 | (bits >> 13 & 0x3ff);
    } else if (layout.width == 2) {
      bits >>= 16;
    }
    std::memcpy(bytes.data() + i * layout.width, &bits, layout.width);
  }
  return bytes;
}

std::vector<uint8_t> whole_on_cpu(Layout layout, const std::vector<uint8_t>& bytes) {
  return good(exponents::encode_array(layout, bytes, nullptr, nullptr));
}

DevicePatch whole_patch(Layout layout, const OnDevice& array, size_t n, Bytes payload) {
  return {layout, array.data(), n, CodecId::kExponents, payload};
}

// Encodes and decodes, and compares with the CPU in between.
void expect_whole(Layout layout, const std::vector<uint8_t>& bytes, size_t skew,
                  const DeviceOptions& options = {}) {
  const size_t n = bytes.size() / layout.width;
  SCOPED_TRACE("width " + std::to_string(layout.width) + ", mask " +
               std::to_string(layout.key_mask) + ", elements " + std::to_string(n) + ", skew " +
               std::to_string(skew));
  const std::vector<uint8_t> expected = whole_on_cpu(layout, bytes);
  const OnDevice array(bytes, skew);
  const auto payload = encode_whole({layout, array.data(), n}, options, nullptr);
  ASSERT_TRUE(payload.ok()) << payload.status().to_string();
  ASSERT_EQ(payload->size(), expected.size());
  ASSERT_TRUE(*payload == expected);
  const OnDevice back(std::vector<uint8_t>(bytes.size(), 0xee), skew);
  const DevicePatch patch = whole_patch(layout, back, n, expected);
  ASSERT_GOOD(check({&patch, 1}, options, nullptr));
  ASSERT_TRUE(back.fetch() == std::vector<uint8_t>(bytes.size(), 0xee)) << "a check has written";
  ASSERT_GOOD(apply({&patch, 1}, options, nullptr));
  ASSERT_TRUE(back.fetch() == bytes);
}

class DeviceExponents : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

TEST_F(DeviceExponents, EveryFormatContentAndManySizes) {
  for (const Layout layout : kKeyLayouts) {
    for (const Filling filling : kFillings) {
      for (const size_t n : {0, 1, 7, 8, 9, 63, 65, 511, 512, 513, 5000, 65535, 65537, 200'001}) {
        expect_whole(layout, make_whole(layout, n, filling), 0);
      }
    }
  }
}

TEST_F(DeviceExponents, AnyAlignment) {
  for (const Layout layout : kKeyLayouts) {
    for (const size_t skew : {1, 2, 3, 5, 8}) {
      expect_whole(layout, make_whole(layout, 70'001, Filling::kManyFar), skew);
    }
  }
}

TEST_F(DeviceExponents, OtherLayoutsAreStoredRaw) {
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    const Layout integers{uint8_t(width), uint8_t(8 * width - 8), 0xff};
    expect_whole(integers, make_pair(1, width, 150'000, 0).old_bytes, width == 4 ? 1 : 0);
  }
}

TEST_F(DeviceExponents, CodesWiderFloatsAsBf16) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    const WideFloats floats = make_wide(3, dtype, 150'003);
    const OnDevice array(floats.wide, 2);
    const NewKind kind = dtype == DType::kF32 ? NewKind::kF32AsBf16 : NewKind::kF16AsBf16;
    const auto payload = encode_whole({kKeyLayouts[0], array.data(), 150'003, kind}, {}, nullptr);
    ASSERT_TRUE(payload.ok()) << payload.status().to_string();
    EXPECT_TRUE(*payload == whole_on_cpu(kKeyLayouts[0], floats.rounded));
  }
}

TEST_F(DeviceExponents, PlansEqualTheCpus) {
  std::vector<std::vector<uint8_t>> host;
  std::vector<OnDevice> arrays;
  std::vector<DeviceWhole> wholes;
  for (const Layout layout : kKeyLayouts) {
    for (const Filling filling : kFillings) {
      host.push_back(make_whole(layout, 140'000 + host.size(), filling));
      arrays.emplace_back(host.back());
      wholes.push_back({layout, arrays.back().data(), host.back().size() / layout.width});
    }
  }
  const std::vector<BlockPlans> plans = good(plan_whole(wholes, {}, nullptr));
  ASSERT_EQ(plans.size(), wholes.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    const Layout layout = wholes[i].layout;
    const size_t block_bytes = exponents::kBlockElements * layout.width;
    ASSERT_EQ(plans[i].size(), 3U);
    for (size_t k = 0; k < plans[i].size(); ++k) {
      const size_t at = k * block_bytes;
      const auto expected = exponents::plan_block(
          layout, Bytes(host[i]).subspan(at, std::min(block_bytes, host[i].size() - at)));
      EXPECT_EQ(plans[i][k].base, expected.base) << i << " " << k;
      EXPECT_EQ(plans[i][k].size_bytes, expected.size_bytes) << i << " " << k;
    }
  }
}

// One megabyte: a few blocks at a time, and everything is decoded twice.
TEST_F(DeviceExponents, LittleScratchAndAReusedWorkspace) {
  ThreadPool pool(4);
  Workspace workspace;
  DeviceOptions options;
  options.scratch_bytes = size_t{1} << 20;
  options.pool = &pool;
  options.workspace = &workspace;
  for (const Layout layout : kKeyLayouts) {
    expect_whole(layout, make_whole(layout, 3'000'001, Filling::kManyFar), 0, options);
    expect_whole(layout, make_whole(layout, 900'000, Filling::kAnyBits), 3, options);
  }
}

// Blocks of other sizes than ours, from the smallest to the largest that the format allows.
TEST_F(DeviceExponents, DecodesBlocksOfEverySize) {
  for (const Layout layout : kKeyLayouts) {
    for (const uint8_t block_log2 : {12, 13, 17, 20}) {
      const size_t n = 1'100'001, block = size_t{1} << block_log2;
      const std::vector<uint8_t> bytes = make_whole(layout, n, Filling::kManyFar);
      std::vector<uint8_t> payload = {block_log2}, blocks;
      for (size_t at = 0; at < n; at += block) {
        const Bytes own =
            Bytes(bytes).subspan(at * layout.width, std::min(block, n - at) * layout.width);
        exponents::BlockWriter writer(layout);
        const Bytes coded = writer.write(own, exponents::plan_base(layout, own));
        blocks.insert(blocks.end(), coded.begin(), coded.end());
        payload.resize(payload.size() + 8);
        store_le(payload.data() + payload.size() - 8, uint64_t(blocks.size()));
      }
      payload.insert(payload.end(), blocks.begin(), blocks.end());
      const OnDevice back(std::vector<uint8_t>(bytes.size()), block_log2 == 13 ? 1 : 0);
      const DevicePatch patch = whole_patch(layout, back, n, payload);
      ASSERT_GOOD(apply({&patch, 1}, {}, nullptr));
      ASSERT_TRUE(back.fetch() == bytes) << int(block_log2);
    }
  }
}

// The last of four arrays is damaged, in every format: the others must stay unchanged, too.
TEST_F(DeviceExponents, DetectsDamageLikeTheCpu) {
  Random random(7);
  for (const Layout layout : kKeyLayouts) {
    const size_t n = 5000;
    std::vector<OnDevice> arrays;
    std::vector<std::vector<uint8_t>> payloads;
    std::vector<Layout> layouts(std::begin(kKeyLayouts), std::end(kKeyLayouts));
    layouts.push_back(layout);
    for (const Layout one : layouts) {
      arrays.emplace_back(std::vector<uint8_t>(n * one.width, 0x5a));
      payloads.push_back(whole_on_cpu(one, make_whole(one, n, Filling::kManyFar)));
    }
    size_t refused = 0;
    for (size_t round = 0; round < 200; ++round) {
      std::vector<uint8_t> damaged = payloads.back();
      if (round % 10 == 0) {
        damaged.resize(random() % damaged.size());
      } else {
        for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
          damaged[random() % damaged.size()] ^= uint8_t(1 << random() % 8);
        }
      }
      std::vector<uint8_t> expected(n * layout.width);
      const Status on_cpu = exponents::decode_array(layout, damaged, expected, nullptr, nullptr);
      std::vector<DevicePatch> patches;
      for (size_t i = 0; i < layouts.size(); ++i) {
        const Bytes payload = i + 1 == layouts.size() ? Bytes(damaged) : Bytes(payloads[i]);
        patches.push_back(whole_patch(layouts[i], arrays[i], n, payload));
      }
      const Status on_device = apply(patches, {}, nullptr);
      ASSERT_EQ(on_device.code(), on_cpu.code()) << round << ": " << on_device.to_string();
      if (on_cpu.ok()) {
        ASSERT_TRUE(arrays.back().fetch() == expected) << round;
      } else {
        ++refused;
        EXPECT_TRUE(mentions(on_device, "patch 3")) << on_device.to_string();
        for (size_t i = 0; i < arrays.size(); ++i) {
          ASSERT_TRUE(arrays[i].fetch() == std::vector<uint8_t>(n * layouts[i].width, 0x5a))
              << "round " << round << ", array " << i;
        }
      }
      for (size_t i = 0; i < arrays.size(); ++i) {  // as they were, for the next round
        arrays[i] = OnDevice(std::vector<uint8_t>(n * layouts[i].width, 0x5a));
      }
    }
    EXPECT_GT(refused, 20U);
  }
}

TEST_F(DeviceExponents, RejectsNamedDefects) {
  const size_t n = 70'000;
  const Layout layout = kKeyLayouts[0];
  const std::vector<uint8_t> whole = whole_on_cpu(layout, make_whole(layout, n, Filling::kNormal));
  const OnDevice array(std::vector<uint8_t>(n * 2, 0x5a));
  const auto bad = [&](const auto& change) {
    std::vector<uint8_t> payload = whole;
    change(&payload);
    const DevicePatch patch = whole_patch(layout, array, n, payload);
    const Status status = apply({&patch, 1}, {}, nullptr);
    EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
    return status.message();
  };
  using Blob = std::vector<uint8_t>;
  EXPECT_NE(bad([](Blob* p) { p->clear(); }).find("end of the payload"), std::string::npos);
  EXPECT_NE(bad([](Blob* p) { (*p)[0] = 11; }).find("block_log2"), std::string::npos);
  EXPECT_NE(bad([](Blob* p) { p->push_back(0); }).find("payload size"), std::string::npos);
  EXPECT_NE(bad([](Blob* p) { (*p)[17] = 250; }).find("base"), std::string::npos);
  EXPECT_NE(bad([](Blob* p) { p->back() = (*p)[17]; }).find("keys that do not fit"),
            std::string::npos);
  EXPECT_TRUE(array.fetch() == std::vector<uint8_t>(n * 2, 0x5a));
}

// The array no longer matches the plan: nothing is written outside a block's range.
TEST_F(DeviceExponents, DetectsWeightsThatChangeAfterThePlan) {
  const size_t n = 200'000;
  for (const Layout layout : kKeyLayouts) {
    const OnDevice array(make_whole(layout, n, Filling::kNormal));
    const DeviceWhole one{layout, array.data(), n};
    const std::vector<BlockPlans> plans = good(plan_whole({&one, 1}, {}, nullptr));
    ASSERT_EQ(plans.size(), 1U);
    const OnDevice other(make_whole(layout, n, Filling::kManyFar));
    const exponents::Directory directory(layout, n * layout.width, plans[0]);
    std::vector<uint8_t> out(size_t(directory.payload_bytes()) - directory.front().size());
    EXPECT_TRUE(code_blocks(one, 0, plans[0], out, {}, nullptr).ok());
    const Status status = code_blocks({layout, other.data(), n}, 0, plans[0], out, {}, nullptr);
    EXPECT_EQ(status.code(), Code::kIo) << status.to_string();
  }
}

TEST_F(DeviceExponents, CodesSomeBlocksInTheMiddle) {
  const Layout layout = kKeyLayouts[0];
  const std::vector<uint8_t> bytes = make_whole(layout, 500'000, Filling::kNormal);
  const std::vector<uint8_t> expected = whole_on_cpu(layout, bytes);
  const auto directory =
      exponents::Directory::parse(layout, bytes.size(), expected, expected.size()).value();
  const OnDevice array(bytes);
  const DeviceWhole one{layout, array.data(), 500'000};
  const std::vector<BlockPlans> plans = good(plan_whole({&one, 1}, {}, nullptr));
  const size_t begin = size_t(directory.block_begin(3)), end = size_t(directory.block_end(5));
  std::vector<uint8_t> out(end - begin);
  ASSERT_GOOD(code_blocks(one, 3, std::span(plans[0]).subspan(3, 3), out, {}, nullptr));
  EXPECT_TRUE(same_bytes(Bytes(expected).subspan(begin, end - begin), out));
}

}  // namespace
}  // namespace deltawire::cuda
