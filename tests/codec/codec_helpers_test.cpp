// Building blocks of the codecs.
#include <gtest/gtest.h>

#include <new>

#include "base/guard.h"
#include "codec/changes.h"
#include "codec/gaps.h"
#include "codec/leb128.h"
#include "codec_arrays.h"

namespace deltawire {
namespace {

TEST(Leb128, RoundTripsAtEveryBitLength) {
  for (int bit = 0; bit < 64; ++bit) {
    for (const uint64_t value :
         {uint64_t{1} << bit, (uint64_t{1} << bit) - 1, ~uint64_t{0} >> bit}) {
      std::vector<uint8_t> bytes;
      put_leb128(value, &bytes);
      EXPECT_LE(bytes.size(), kMaxLeb128Bytes);
      bytes.push_back(0xee);
      Bytes in = bytes;
      uint64_t read = 0;
      ASSERT_TRUE(take_leb128("n", &in, &read).ok());
      EXPECT_EQ(read, value);
      EXPECT_EQ(in.size(), 1U);
      for (size_t size = 0; size + 1 < bytes.size(); ++size) {
        in = Bytes(bytes).first(size);
        EXPECT_EQ(take_leb128("n", &in, &read).code(), Code::kCorruption);
      }
    }
  }
}

TEST(Leb128, RejectsLongAndPaddedNumbers) {
  const auto message = [](std::vector<uint8_t> bytes) {
    Bytes in = bytes;
    uint64_t value = 0;
    return take_leb128("n", &in, &value).message();
  };
  EXPECT_EQ(message({}), "n: expected a LEB128 number, got the end of the payload");
  EXPECT_EQ(message({0x80, 0x00}), "n: expected the shortest LEB128 form, got a padded one");
  std::vector<uint8_t> bytes(9, 0xff);
  bytes.push_back(0x02);
  EXPECT_EQ(message(bytes), "n: expected a LEB128 number of 64 bits, got a longer one");
  EXPECT_EQ(message(std::vector<uint8_t>(11, 0x80)),
            "n: expected a LEB128 number of 64 bits, got a longer one");
}

TEST(Guard, TurnsBadAllocIntoOutOfMemory) {
  const Status status = guard_memory("testing", []() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_EQ(status.to_string(), "out of memory: testing");
  EXPECT_EQ(guard_memory("testing",
                         []() -> Result<int> {
                           std::vector<uint8_t> bytes;
                           bytes.resize(~size_t{0});
                           return int(bytes.size());
                         })
                .status()
                .code(),
            Code::kOutOfMemory);
}

TEST(Guard, ReturnsTheFailureOfTheLowestIndex) {
  ThreadPool four(4);
  for (ThreadPool* pool : {static_cast<ThreadPool*>(nullptr), &four}) {
    for (int round = 0; round < 100; ++round) {
      const Status status = parallel_try("testing", pool, 64, [](size_t i, unsigned) -> Status {
        if (i == 63) throw std::bad_alloc();
        return i % 10 == 7 ? corruption(std::to_string(i)) : Status();
      });
      EXPECT_EQ(status.code(), Code::kCorruption);
      EXPECT_EQ(status.message(), "7");
    }
  }
}

TEST(Changes, CollectsExactlyTheDifferences) {
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    const ArrayPair pair = make_arrays(width, 300'000, 0.1, 5);
    const auto changes =
        collect_changes(width, pair.old_bytes.span(), pair.new_bytes.span(), nullptr);
    ASSERT_TRUE(changes.ok());
    Changes expected;
    for (size_t i = 0; i < 300'000; ++i) {
      const uint64_t value = get_element(pair.new_bytes.span(), width, i);
      if (value == get_element(pair.old_bytes.span(), width, i)) continue;
      expected.positions.push_back(i);
      expected.values.resize(expected.values.size() + width);
      std::memcpy(&expected.values[expected.values.size() - width], &value, width);
    }
    EXPECT_EQ(changes->positions, expected.positions);
    EXPECT_EQ(changes->values, expected.values);
    EXPECT_EQ(
        count_different(width, pair.old_bytes.span().data(), pair.new_bytes.span().data(), 300'000),
        expected.positions.size());
  }
}

TEST(Changes, ScatterRejectsBadPositionsBeforeWriting) {
  const auto message = [](Changes changes) {
    std::vector<uint8_t> data(10);
    const Status status = scatter_changes(2, changes, data, nullptr);
    EXPECT_EQ(data, std::vector<uint8_t>(10));
    return status.message();
  };
  EXPECT_EQ(message({{1, 5}, {1, 1, 1, 1}}), "position of change 1: expected 2 to below 5, got 5");
  EXPECT_EQ(message({{1, 1}, {1, 1, 1, 1}}), "position of change 1: expected 2 to below 5, got 1");
  EXPECT_EQ(message({{0, 1}, {1, 1, 1}}), "size of the values: expected 4, got 3");
}

// Arrays of 2^33 elements without the memory: the body is written from handmade chunks.
TEST(Gaps, WidthGrowsWithTheLargestGap) {
  struct Case {
    uint64_t last;
    unsigned gap_width;
  };
  const Case cases[] = {{4 + 0xffff, 2},
                        {4 + 0x10000, 4},
                        {4 + 0xffffffffULL, 4},
                        {4 + 0x100000000ULL, 8},
                        {(uint64_t{1} << 33) - 1, 8}};
  for (const Case& c : cases) {
    std::vector<ChunkChanges> chunks(3);
    chunks[0] = {0, {1, 3}, {11, 12}};
    chunks[2] = {c.last, {0}, {13}};
    const GapsHeader header = plan_gaps(chunks, nullptr);
    EXPECT_EQ(header.count, 3U);
    EXPECT_EQ(header.gap_width, c.gap_width);
    std::vector<uint8_t> body(header.body_bytes(1));
    write_gaps_body(header, 1, chunks, body.data(), nullptr);
    const auto changes = decode_gaps_body(header, 1, body, uint64_t{1} << 33, nullptr);
    ASSERT_TRUE(changes.ok()) << changes.status().to_string();
    EXPECT_EQ(changes->positions, (std::vector<uint64_t>{1, 3, c.last}));
    EXPECT_EQ(changes->values, (std::vector<uint8_t>{11, 12, 13}));
    EXPECT_EQ(decode_gaps_body(header, 1, body, c.last, nullptr).status().code(),
              Code::kCorruption);
  }
}

TEST(Gaps, RejectsGapsThatOverflow) {
  constexpr uint64_t n = uint64_t{1} << 33;
  const uint64_t forged[][3] = {{~uint64_t{0}, 0, 0},
                                {5, ~uint64_t{0} - 5, 0},
                                {uint64_t{1} << 63, uint64_t{1} << 63, 1},
                                {n - 2, 0, 0},
                                {0, 0, n}};
  for (const auto& gaps : forged) {
    std::vector<uint8_t> body(3 * 9);
    std::memcpy(body.data(), gaps, 24);
    const auto changes = decode_gaps_body({8, 3}, 1, body, n, nullptr);
    EXPECT_EQ(changes.status().code(), Code::kCorruption);
  }
  // 4-byte gaps over several blocks, each of maximal size.
  const GapsHeader header{4, 200'000};
  const std::vector<uint8_t> body(header.body_bytes(1), 0xff);
  EXPECT_EQ(decode_gaps_body(header, 1, body, n, nullptr).status().message(),
            "gap of change 2: expected below 0, got 4294967295");
}

}  // namespace
}  // namespace deltawire
