#include <limits>

#include "deltawire/tensor.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

struct Expected {
  std::string_view name;
  uint32_t bits;
};
// Written out again on purpose: these names are in every existing checkpoint.
constexpr Expected kExpected[] = {
    {"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},
    {"U16", 16},    {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},
    {"F32", 32},    {"C64", 64}, {"F64", 64},    {"I64", 64},    {"U64", 64},
};
constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(DType, NamesAndBits) {
  for (size_t i = 0; i < std::size(kExpected); ++i) {
    const auto dtype = DType(i);
    EXPECT_EQ(dtype_name(dtype), kExpected[i].name);
    EXPECT_EQ(dtype_bits(dtype), kExpected[i].bits);
    EXPECT_EQ(parse_dtype(kExpected[i].name), dtype);
  }
}

TEST(DType, RejectsUnknownNames) {
  for (const auto name : {"", "bf16", "BF16 ", "F128", "F8"}) EXPECT_FALSE(parse_dtype(name));
}

TEST(DType, ComputesSizes) {
  EXPECT_EQ(*tensor_size_bytes(DType::kBF16, {}), 2U);
  EXPECT_EQ(*tensor_size_bytes(DType::kBF16, {3, 5}), 30U);
  EXPECT_EQ(*tensor_size_bytes(DType::kF64, {3, 0, 5}), 0U);
  EXPECT_EQ(*tensor_size_bytes(DType::kF4, {2, 3}), 3U);
  EXPECT_EQ(*tensor_size_bytes(DType::kF6_E2M3, {4}), 3U);
  EXPECT_EQ(*tensor_size_bytes(DType::kF6_E3M2, {2, 10}), 15U);
}

TEST(DType, PackedElementsMustFillBytes) {
  for (const uint64_t n : {1, 3, 7, 9}) {
    EXPECT_FAILS(tensor_size_bytes(DType::kF4, {n}), kInvalidArgument, "does not fill whole bytes");
  }
  for (const uint64_t n : {1, 2, 3, 5, 6}) {
    EXPECT_FALSE(tensor_size_bytes(DType::kF6_E3M2, {n}).ok());
  }
}

TEST(DType, AcceptsTheLargestSizes) {
  EXPECT_EQ(*tensor_size_bytes(DType::kU8, {kMax}), kMax);
  EXPECT_EQ(*tensor_size_bytes(DType::kU16, {kMax / 2}), kMax - 1);
  EXPECT_EQ(*tensor_size_bytes(DType::kF4, {kMax - 1}), kMax / 2);
  EXPECT_FAILS(tensor_size_bytes(DType::kU16, {kMax / 2 + 1}), kInvalidArgument, "over 2^64 bytes");
}

TEST(DType, DetectsShapeOverflow) {
  EXPECT_EQ(*num_elements({1ULL << 32, (1ULL << 32) - 1}), kMax - (1ULL << 32) + 1);
  EXPECT_FAILS(num_elements({1ULL << 32, 1ULL << 32}), kInvalidArgument, "[4294967296, 4294967296]",
               "over 2^64 elements");
  // A zero dimension does not hide an overflow, in any position.
  EXPECT_FALSE(num_elements({0, 1ULL << 63, 2}).ok());
  EXPECT_FALSE(num_elements({1ULL << 63, 2, 0}).ok());
}

TEST(DType, FormatsShapes) {
  EXPECT_EQ(shape_to_string({}), "[]");
  EXPECT_EQ(shape_to_string({7}), "[7]");
  EXPECT_EQ(shape_to_string({2048, 1024}), "[2048, 1024]");
}

}  // namespace
}  // namespace deltawire::testing
