// `adaptive`: four-bit codes and sparse changes, compared with their entropy.
#include <gtest/gtest.h>

#include <cmath>

#include "codec/choose.h"
#include "codec/codec.h"
#include "codec_arrays.h"

namespace deltawire {
namespace {

const Codec& adaptive() { return *find_codec("adaptive"); }

void expect_round_trip(Layout layout, const ArrayPair& pair) {
  const auto encoded =
      adaptive().encode(layout, pair.old_bytes.span(), pair.new_bytes.span(), nullptr);
  ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
  EXPECT_EQ(encoded->num_changed, pair.num_changed);
  EXPECT_EQ(encoded->payload.empty(), pair.num_changed == 0);
  WalledBuffer patched(pair.old_bytes.span());
  ASSERT_TRUE(adaptive().apply(layout, encoded->payload, patched.span(), nullptr).ok());
  EXPECT_TRUE(same_bytes(pair.new_bytes.span(), patched.span()));
  EXPECT_TRUE(patched.walls_stand());
  const auto changes = adaptive().decode(layout, encoded->payload, pair.old_bytes.span(), nullptr);
  ASSERT_TRUE(changes.ok());
  EXPECT_EQ(changes->positions.size(), pair.num_changed);
}

TEST(Adaptive, MatchesTheExampleInTheFormatDocument) {
  std::vector<uint8_t> before = {0x21, 0x43, 0x65, 0x87, 0x21, 0x43, 0x65, 0x87};
  std::vector<uint8_t> after = before;
  after[1] = 0x53;
  after[7] = 0x77;
  const std::vector<uint8_t> expected = {0x01, 0x02, 0x29, 0x6e, 0xbd};
  const auto encoded = adaptive().encode({1, 0, 0xff}, before, after, nullptr);
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(encoded->payload, expected);
  ASSERT_TRUE(adaptive().apply({1, 0, 0xff}, expected, before, nullptr).ok());
  EXPECT_EQ(before, after);
}

TEST(Adaptive, RoundTripsEveryWidthSizeAndDensity) {
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    for (const size_t n : {0, 1, 2, 7, 63, 1001, 40'001}) {
      for (const double density : {0.0, 0.0005, 0.02, 0.3, 1.0}) {
        SCOPED_TRACE(testing::Message() << width << " " << n << " " << density);
        expect_round_trip(layout_of(width), make_arrays(width, n, density, n + width));
      }
    }
  }
}

TEST(Adaptive, RoundTripsExtremeElementValues) {
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    const uint64_t mask = ~uint64_t{0} >> (64 - 8 * width), top = mask ^ mask >> 1;
    const uint64_t values[] = {0,    1,           top - 1,         top, top + 1, mask - 1,
                               mask, 0x0f & mask, mask << 4 & mask};
    constexpr size_t kCount = std::size(values);
    ArrayPair pair{WalledBuffer(kCount * kCount * width), WalledBuffer(kCount * kCount * width), 0};
    for (size_t i = 0; i < kCount * kCount; ++i) {
      set_element(pair.old_bytes.span(), width, i, values[i / kCount]);
      set_element(pair.new_bytes.span(), width, i, values[i % kCount]);
      pair.num_changed += values[i / kCount] != values[i % kCount];
    }
    expect_round_trip(layout_of(width), pair);
  }
}

// Four-bit codes of which one in `one_in` moves by one, as in quantised weights. Returns the pair
// and the least number of bits that positions and signs need.
struct Packed {
  ArrayPair pair;
  double least_bits = 0;
  uint64_t num_codes_changed = 0;
};
Packed make_packed(unsigned width, size_t num_codes, uint64_t one_in, uint64_t seed) {
  Random random(seed);
  const size_t size = num_codes / 2;
  Packed made{{WalledBuffer(size), WalledBuffer(size), 0}};
  for (size_t i = 0; i < num_codes; ++i) {
    const unsigned before = 1 + random() % 14;
    const bool changes = random() % one_in == 0;
    const unsigned after = !changes ? before : random() % 2 != 0 ? before + 1 : before - 1;
    uint8_t &old_byte = made.pair.old_bytes.span()[i / 2],
            &new_byte = made.pair.new_bytes.span()[i / 2];
    if (i % 2 == 0) old_byte = new_byte = 0;
    old_byte = uint8_t(old_byte | before << 4 * (i % 2));
    new_byte = uint8_t(new_byte | after << 4 * (i % 2));
    made.num_codes_changed += changes;
  }
  for (size_t i = 0; i < size / width; ++i) {
    made.pair.num_changed += get_element(made.pair.old_bytes.span(), width, i) !=
                             get_element(made.pair.new_bytes.span(), width, i);
  }
  const double n = double(num_codes), c = double(made.num_codes_changed);
  made.least_bits = n * std::log2(n) - c * std::log2(c) - (n - c) * std::log2(n - c) + c;
  return made;
}

TEST(Adaptive, PackedCodesTakeAtMost4PercentOverEntropy) {
  for (const unsigned width : {1U, 4U}) {
    const Layout integers{uint8_t(width), uint8_t(8 * (width - 1)), 0xff};
    for (const uint64_t one_in : {20, 300, 5000}) {
      const Packed packed = make_packed(width, size_t{4} << 20, one_in, one_in);
      expect_round_trip(integers, packed.pair);
      const auto choice = encode_smallest(integers, packed.pair.old_bytes.span(),
                                          packed.pair.new_bytes.span(), nullptr);
      ASSERT_TRUE(choice.ok());
      EXPECT_EQ(choice->codec, CodecId::kAdaptive) << one_in;
      EXPECT_LT(8 * double(choice->encoded.payload.size()), 1.04 * packed.least_bits)
          << "width " << width << ", one in " << one_in;
    }
  }
}

TEST(Adaptive, OmitsTablesForFewChanges) {
  const Layout bytes{1, 0, 0xff};
  const Packed packed = make_packed(1, 65536, 6000, 5);
  ASSERT_GT(packed.num_codes_changed, 4);
  const auto encoded =
      adaptive().encode(bytes, packed.pair.old_bytes.span(), packed.pair.new_bytes.span(), nullptr);
  ASSERT_TRUE(encoded.ok());
  EXPECT_LT(encoded->payload.size(), packed.least_bits / 8 + 12);
}

// The rule shared by the CPU and the GPU.
TEST(Adaptive, IsTriedForIntegersAndForFewBytes) {
  const uint64_t million = uint64_t{1} << 20;
  for (const uint8_t width : {1, 2, 4, 8}) {
    const Layout integers{width, uint8_t(8 * (width - 1)), 0xff};
    EXPECT_FALSE(adaptive_may_be_smaller(0, integers));
    EXPECT_TRUE(adaptive_may_be_smaller(1, integers));
    EXPECT_TRUE(adaptive_may_be_smaller(million - 1, integers));
    EXPECT_FALSE(adaptive_may_be_smaller(million, integers));
    EXPECT_EQ(adaptive_may_be_smaller(2047, layout_of(width)), width == 1);  // floats
    EXPECT_FALSE(adaptive_may_be_smaller(2048, layout_of(width)));
    EXPECT_TRUE(gaps_may_be_smaller(10, 10 * (2 + width) + 1, integers));
    EXPECT_FALSE(gaps_may_be_smaller(10, 10 * (2 + width), integers));
  }
}

// No codec beats an empty payload: an unchanged array needs no further pass.
TEST(Adaptive, IsNotTriedForUnchangedArrays) {
  const std::vector<uint8_t> array(size_t{4} * 300'000, 0x37);
  Hasher before(DigestKind::kSum128), after(DigestKind::kSum128);
  const auto made = encode_changing({4, 24, 0xff}, array, array, {&before, &after},
                                    {.new_bytes = true}, false, nullptr);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  ASSERT_TRUE(made->has_value());
  EXPECT_EQ((*made)->num_changed, 0);
  EXPECT_TRUE((*made)->payload.empty());
  EXPECT_EQ(after.finish(), digest_of(DigestKind::kSum128, array));
}

std::string failure(const std::vector<uint8_t>& payload) {
  WalledBuffer data(10);
  std::fill(data.span().begin(), data.span().end(), 0);
  const Status status = adaptive().apply({1, 0, 0xff}, payload, data.span(), nullptr);
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_TRUE(data.walls_stand());
  return status.message();
}

TEST(Adaptive, RejectsInconsistentPayloads) {
  EXPECT_EQ(failure({2, 1, 0}), "adaptive: view: expected 0 or 1, got 2");
  EXPECT_EQ(failure({0, 0, 0}), "adaptive: number of changes: expected 1 to 10, got 0");
  EXPECT_EQ(failure({0, 11, 0}), "adaptive: number of changes: expected 1 to 10, got 11");
  EXPECT_EQ(failure({1, 21, 0}), "adaptive: number of changes: expected 1 to 20, got 21");
  EXPECT_EQ(failure({1}),
            "adaptive: number of changes: expected a LEB128 number, got the end of the payload");
  EXPECT_EQ(failure({0, 1, 0xff, 0xff, 0xff, 0xff}),
            "adaptive: position of change 0: expected below 10, got one beyond the array");
  EXPECT_EQ(failure({0, 9}), "adaptive: expected more bytes, got the end of the payload");
}

// Random bytes after a valid header, for small and large arrays: an error or a patched array.
TEST(Adaptive, SurvivesRandomPayloads) {
  Random random(3);
  for (int round = 0; round < 4000; ++round) {
    const unsigned width = 1U << random() % 4;
    const Layout layout = layout_of(width);
    const size_t n = 1 + random() % 3000;
    std::vector<uint8_t> payload = {uint8_t(random() % 2), uint8_t(random() % 128)};
    const size_t length = random() % 40;
    for (size_t i = 0; i < length; ++i) payload.push_back(uint8_t(random()));
    const ArrayPair pair = make_arrays(width, n, 0, uint64_t(round));
    WalledBuffer patched(pair.old_bytes.span());
    const Status status = adaptive().apply(layout, payload, patched.span(), nullptr);
    const auto changes = adaptive().decode(layout, payload, pair.old_bytes.span(), nullptr);
    EXPECT_TRUE(patched.walls_stand());
    EXPECT_EQ(status.ok(), changes.ok());
    EXPECT_TRUE(status.ok() || status.code() == Code::kCorruption) << status.to_string();
  }
}

}  // namespace
}  // namespace deltawire
