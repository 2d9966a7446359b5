// Numbers of slime's first generation: promotion, the exact way back, and the checksum.
#include <cmath>

#include "dialect/slime_gen1/gen1_values.h"
#include "test_files.h"

namespace deltawire::gen1 {
namespace {

using testing::is_failure;

template <class Element>
std::vector<uint8_t> bytes_of(const std::vector<Element>& elements) {
  std::vector<uint8_t> bytes(elements.size() * sizeof(Element));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

template <class Element>
std::vector<Element> all_elements() {
  std::vector<Element> all(size_t{1} << (8 * sizeof(Element)));
  for (size_t i = 0; i < all.size(); ++i) all[i] = Element(i);
  return all;
}

// Every NaN payload, both zeros, all subnormals.
TEST(SlimeGen1Values, EverySmallFloatSurvivesWideOnes) {
  const struct {
    DType narrow, wide;
    std::vector<uint8_t> values;
  } kCases[] = {
      {DType::kBF16, DType::kF32, bytes_of(all_elements<uint16_t>())},
      {DType::kBF16, DType::kF64, bytes_of(all_elements<uint16_t>())},
      {DType::kF16, DType::kF32, bytes_of(all_elements<uint16_t>())},
      {DType::kF16, DType::kF64, bytes_of(all_elements<uint16_t>())},
      {DType::kF8_E4M3, DType::kF32, bytes_of(all_elements<uint8_t>())},
      {DType::kF8_E5M2, DType::kF16, bytes_of(all_elements<uint8_t>())},
      {DType::kF8_E5M2, DType::kBF16, bytes_of(all_elements<uint8_t>())},
      {DType::kU8, DType::kBF16, bytes_of(all_elements<uint8_t>())},
      {DType::kI8, DType::kF16, bytes_of(all_elements<uint8_t>())},
      {DType::kI16, DType::kF32, bytes_of(all_elements<uint16_t>())},
      {DType::kU16, DType::kI32, bytes_of(all_elements<uint16_t>())},
  };
  for (const auto& [narrow, wide, values] : kCases) {
    ASSERT_TRUE(holds_exactly(wide, narrow)) << dtype_name(narrow);
    const std::vector<uint8_t> widened = widen_values(narrow, wide, values);
    const auto again = narrow_values(wide, narrow, widened);
    ASSERT_TRUE(again.ok()) << dtype_name(narrow) << again.status().to_string();
    EXPECT_EQ(*again, values) << dtype_name(narrow) << " in " << dtype_name(wide);
  }
}

TEST(SlimeGen1Values, BF16IsTheUpperHalfOfF32) {
  const auto halves = all_elements<uint16_t>();
  const std::vector<uint8_t> wide = widen_values(DType::kBF16, DType::kF32, bytes_of(halves));
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(load_le<uint32_t>(wide.data() + 4 * i), uint32_t(halves[i]) << 16);
  }
}

// The machine's own conversion, where it keeps all bits.
TEST(SlimeGen1Values, Float64IsWhatTheMachineMakes) {
  uint32_t seed = 7;
  for (int i = 0; i < 100000; ++i) {
    seed = seed * 1664525 + 1013904223;
    const uint32_t raw = i < 1000 ? seed & 0x807fffff : seed;  // subnormals first
    const float value = std::bit_cast<float>(raw);
    if (std::isnan(value)) continue;
    ASSERT_EQ(to_float64({8, 23}, raw), std::bit_cast<uint64_t>(double(value))) << raw;
    ASSERT_EQ(from_float64({8, 23}, to_float64({8, 23}, raw)), raw);
  }
  EXPECT_EQ(as_converted({8, 23}, 0x7f800001), 0x7ff8000020000000);  // signalling: made quiet
  EXPECT_EQ(as_converted({8, 23}, 0xffc00000), 0xfff8000000000000);
  EXPECT_EQ(as_converted({4, 3, false}, 0x7f), 0x7ffe000000000000);
  EXPECT_EQ(as_converted({4, 3, false}, 0x78), std::bit_cast<uint64_t>(256.0));  // no infinity
  EXPECT_EQ(as_converted(kFloat64, 0x7ff0000000000001), 0x7ff0000000000001);
}

TEST(SlimeGen1Values, WhatTheDTypeDoesNotHaveIsRefused) {
  const auto narrow = [](DType wide, DType to, const std::vector<uint8_t>& values) {
    return narrow_values(wide, to, values).status();
  };
  EXPECT_FAILS(narrow(DType::kF32, DType::kBF16, bytes_of<uint32_t>({0, 0x3f800001})), kCorruption,
               "value 1 (F32)", "one that BF16 has", "1065353217");
  EXPECT_FALSE(narrow(DType::kF32, DType::kBF16, bytes_of<uint32_t>({0x7f800001})).ok());
  EXPECT_FALSE(narrow(DType::kF32, DType::kBF16, bytes_of<uint32_t>({0x00000001})).ok());
  EXPECT_FALSE(narrow(DType::kF32, DType::kF16, bytes_of<float>({65536.0F})).ok());
  EXPECT_FALSE(narrow(DType::kF32, DType::kF16, bytes_of<float>({0x1p-25F})).ok());
  EXPECT_TRUE(narrow(DType::kF32, DType::kF16, bytes_of<float>({0x1p-24F, 65504.0F})).ok());
  EXPECT_FALSE(narrow(DType::kF32, DType::kF8_E4M3, bytes_of<float>({480.0F})).ok());
  EXPECT_TRUE(narrow(DType::kF32, DType::kF8_E4M3, bytes_of<float>({448.0F, -0.0F})).ok());
  EXPECT_FALSE(narrow(DType::kBF16, DType::kU8, bytes_of<uint16_t>({0x3fc0})).ok());  // 1.5
  EXPECT_FALSE(narrow(DType::kBF16, DType::kU8, bytes_of<uint16_t>({0x8000})).ok());  // -0
  EXPECT_FALSE(narrow(DType::kBF16, DType::kU8, bytes_of<uint16_t>({0x4380})).ok());  // 256
  EXPECT_FALSE(narrow(DType::kBF16, DType::kI8, bytes_of<uint16_t>({0x7fc0})).ok());  // NaN
  EXPECT_FALSE(narrow(DType::kI32, DType::kI8, bytes_of<int32_t>({128})).ok());
  EXPECT_FALSE(narrow(DType::kU8, DType::kBool, bytes_of<uint8_t>({2})).ok());
}

TEST(SlimeGen1Values, PromotionIsTorchsWhereNothingIsLost) {
  const auto same = [](DType a, DType b, std::optional<DType> expected) {
    EXPECT_EQ(promote_exactly(a, b), expected) << dtype_name(a) << " " << dtype_name(b);
    EXPECT_EQ(promote_exactly(b, a), expected) << dtype_name(b) << " " << dtype_name(a);
  };
  same(DType::kBF16, DType::kBF16, DType::kBF16);
  same(DType::kBF16, DType::kF32, DType::kF32);
  same(DType::kBF16, DType::kF16, DType::kF32);
  same(DType::kF16, DType::kF64, DType::kF64);
  same(DType::kI16, DType::kI64, DType::kI64);
  same(DType::kF8_E4M3, DType::kF8_E4M3, DType::kF8_E4M3);
  same(DType::kF8_E4M3, DType::kF32, std::nullopt);  // torch refuses
  same(DType::kI32, DType::kBF16, std::nullopt);     // torch rounds
  same(DType::kI64, DType::kF64, std::nullopt);
  EXPECT_FALSE(holds_exactly(DType::kBF16, DType::kF16));
  EXPECT_FALSE(holds_exactly(DType::kF16, DType::kBF16));
  EXPECT_FALSE(holds_exactly(DType::kI32, DType::kF32));
  EXPECT_FALSE(holds_exactly(DType::kI32, DType::kU32));
}

TEST(SlimeGen1Values, Checksums) {
  const auto of = [](const std::vector<uint8_t>& positions, DType dtype,
                     const std::vector<uint8_t>& values) {
    return gen1::checksum(positions, dtype, values);
  };
  EXPECT_EQ(of({}, DType::kBF16, {}), "0");
  EXPECT_EQ(of({1, 2, 4}, DType::kBF16, {}), "7");
  for (size_t size = 0; size < 40; ++size) {
    std::vector<uint8_t> positions(size);
    uint8_t expected = 0;
    for (size_t i = 0; i < size; ++i) expected ^= positions[i] = uint8_t(37 * i + 11);
    EXPECT_EQ(of(positions, DType::kBF16, {}), std::to_string(expected)) << size;
  }
  EXPECT_EQ(of({}, DType::kF32, bytes_of<float>({1.0F})), "9214364837600034816");
  // -0: the 64th bit, one further up.
  EXPECT_EQ(of({3}, DType::kF32, bytes_of<float>({-0.0F})), "18446744073709551619");
  EXPECT_EQ(of({}, DType::kF64, bytes_of<uint64_t>({~uint64_t{0}})), "36893488147419103230");
  EXPECT_EQ(of({}, DType::kI64, bytes_of<int64_t>({-3})),
            of({}, DType::kF64, bytes_of<double>({-3.0})));
  EXPECT_EQ(of({}, DType::kBool, {1, 0, 1, 1}), of({}, DType::kF32, bytes_of<float>({1.0F})));
}

TEST(SlimeGen1Values, NaNIsFound) {
  EXPECT_EQ(find_nan(DType::kBF16, bytes_of<uint16_t>({0x7f80, 0x8000, 0xff81})), 2U);
  EXPECT_EQ(find_nan(DType::kF16, bytes_of<uint16_t>({0x7c00, 0x7c01})), 1U);
  EXPECT_EQ(find_nan(DType::kF8_E4M3, bytes_of<uint8_t>({0x78, 0xff})), 1U);
  EXPECT_EQ(find_nan(DType::kF32, bytes_of<uint32_t>({0xff800000})), std::nullopt);
  EXPECT_EQ(find_nan(DType::kI32, bytes_of<uint32_t>({0x7fc00000})), std::nullopt);
}

TEST(SlimeGen1Values, Names) {
  EXPECT_EQ(parse_torch_dtype("bfloat16"), DType::kBF16);
  EXPECT_EQ(torch_dtype_name(DType::kF8_E4M3), "float8_e4m3fn");
  EXPECT_EQ(parse_torch_dtype("torch.bfloat16"), std::nullopt);
  EXPECT_EQ(torch_dtype_name(DType::kC64), "");
}

}  // namespace
}  // namespace deltawire::gen1
