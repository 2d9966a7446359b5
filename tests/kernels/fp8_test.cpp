// FP8 blocks: every target gives the scalar's bits, which match the arithmetic definition.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/fp8_block.h"
#include "kernels/targets.h"

namespace deltawire {
namespace {

float f32_of_e4m3(unsigned code) {
  const int exponent = int(code >> 3 & 15);
  const auto fraction = float(code & 7);
  const float size =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (code & 0x80) != 0 ? -size : size;
}

// Finds the nearest value by trying all; of two equally near ones, the even one.
uint8_t nearest(float value) {
  uint8_t best = 0;
  for (unsigned code = 0; code < 0x7f; ++code) {
    const double now = std::abs(double(std::abs(value)) - double(f32_of_e4m3(code)));
    const double before = std::abs(double(std::abs(value)) - double(f32_of_e4m3(best)));
    if (now < before || (now == before && code % 2 == 0)) best = uint8_t(code);
  }
  return uint8_t(best | (std::signbit(value) ? 0x80 : 0));
}

TEST(Fp8, RoundsToNearestEven) {
  std::mt19937_64 random(17);
  for (unsigned code = 0; code < 0x7e;
       ++code) {  // every value, every tie, and what is next to them
    const float low = f32_of_e4m3(code), high = f32_of_e4m3(code + 1);
    const float tie = low + (high - low) / 2;
    for (const float value : {low, tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 1e9F)}) {
      ASSERT_EQ(fp8::e4m3_of(value), nearest(value)) << value;
      ASSERT_EQ(fp8::e4m3_of(-value), nearest(-value)) << value;
    }
  }
  for (int i = 0; i < 20000; ++i) {
    const float value = std::ldexp(float(random() % 1000000) / 1e6F, int(random() % 24) - 14);
    ASSERT_EQ(fp8::e4m3_of(value), nearest(value)) << value;
  }
  EXPECT_EQ(fp8::e4m3_of(1e30F), 0x7e);
  EXPECT_EQ(fp8::e4m3_of(-INFINITY), 0xfe);
  EXPECT_EQ(fp8::e4m3_of(-0.0F), 0x80);
}

TEST(Fp8, ComputesScalesOfBlocks) {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  EXPECT_EQ(fp8::scale_of(bits(448), false), 1);
  EXPECT_EQ(fp8::scale_of(0, false), 1e-4F / 448);
  EXPECT_EQ(fp8::scale_of(bits(448), true), 1);
  EXPECT_EQ(fp8::scale_of(bits(449), true), 2);
  EXPECT_EQ(fp8::scale_of(0, true), std::ldexp(1.0F, -22));
  EXPECT_TRUE(std::isfinite(fp8::scale_of(0x7f7fffff, true)));
}

class Fp8Target : public testing::TestWithParam<const Kernels*> {};

TEST_P(Fp8Target, MatchesScalar) {
  const Kernels &target = *GetParam(), &scalar = scalar_kernels();
  std::mt19937_64 random(3);
  for (const size_t n : {0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 127, 128, 129, 1000}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<uint8_t> bytes(4 * n + 1);  // at an odd address
      for (uint8_t& byte : bytes) byte = uint8_t(random());
      // Ordinary magnitudes as well as arbitrary bits.
      for (size_t i = 0; round % 2 == 0 && i < n; ++i) {
        bytes[4 + 4 * i] = uint8_t(0x38 + random() % 8) | (bytes[4 + 4 * i] & 0x80);
        bytes[2 + 4 * i] = uint8_t(0x38 + random() % 8) | (bytes[2 + 4 * i] & 0x80);
      }
      const void* const data = bytes.data() + 1;
      for (int w = 0; w < 2; ++w) {
        ASSERT_EQ(target.largest[w](data, n), scalar.largest[w](data, n));
      }
      for (size_t i = 2; i < bytes.size(); i += 2) {  // the others are never quantised
        if ((bytes[i] & 0x7f) == 0x7f) bytes[i] ^= 1;
      }
      for (const float inverse : {1.0F, 448 / 0.037F, 4.48e6F, 1e-30F}) {
        for (size_t from = 0; from < kWideFloats; ++from) {
          std::vector<uint8_t> expected(n), got(n);
          scalar.to_e4m3[from](data, n, inverse, expected.data());
          target.to_e4m3[from](data, n, inverse, got.data());
          ASSERT_EQ(got, expected) << n << " elements, kind " << from;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Target,
                         testing::ValuesIn(available_kernels().begin(), available_kernels().end()),
                         [](const auto& info) {
                           std::string name(info.param->name);
                           std::erase(name, '-');
                           return name;
                         });

TEST(Fp8, ConvertsAnyRangeOfRaggedBlocks) {
  const uint64_t rows = 37, columns = 75;
  std::vector<float> weights(rows * columns);
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.02F);
  for (float& weight : weights) weight = normal(random);
  const fp8::Matrix matrix{weights.data(), WideFloat::kF32, rows, columns, 16, 32, false};
  std::vector<float> scales(matrix.rows_of_blocks() * matrix.columns_of_blocks());
  ASSERT_EQ(scales.size(), 9);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(fp8::scales(matrix, i, scales.data() + 3 * i));
  std::vector<uint8_t> all(rows * columns);
  fp8::elements(matrix, scales.data(), 0, all);
  for (uint64_t i = 0; i < all.size(); ++i) {
    const uint64_t row = i / columns, column = i % columns;
    float amax = 0;
    for (uint64_t r = row / 16 * 16; r < std::min(rows, row / 16 * 16 + 16); ++r) {
      for (uint64_t c = column / 32 * 32; c < std::min(columns, column / 32 * 32 + 32); ++c) {
        amax = std::max(amax, std::abs(weights[r * columns + c]));
      }
    }
    ASSERT_EQ(scales[row / 16 * 3 + column / 32], amax / 448);
    ASSERT_EQ(all[i], fp8::e4m3_of(weights[i] * (1 / (amax / 448))));
  }
  for (const size_t first : {0, 1, 74, 75, 100, 2000, 2774}) {
    std::vector<uint8_t> some(std::min<size_t>(200, all.size() - first));
    fp8::elements(matrix, scales.data(), first, some);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + ptrdiff_t(first))) << first;
  }
}

TEST(Fp8, ReportsNonFiniteValues) {
  for (const float bad :
       {NAN, INFINITY, -INFINITY, 3.4e38F}) {  // the last becomes infinite in BF16
    std::vector<float> weights(64, 0.5F);
    weights[63] = bad;
    std::vector<float> out(2);
    const fp8::Matrix matrix{weights.data(), WideFloat::kF32AsBf16, 2, 32, 1, 16, true};
    EXPECT_TRUE(fp8::scales(matrix, 0, out.data()));
    EXPECT_FALSE(fp8::scales(matrix, 1, out.data())) << bad;
  }
}

}  // namespace
}  // namespace deltawire
