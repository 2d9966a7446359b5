// xxh3-128 put together from parts, as a GPU computes it, against the library's.
#include "digest/xxh3_parts.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace deltawire::xxh3 {
namespace {

std::vector<uint8_t> some_bytes(size_t size) {
  std::mt19937_64 random(size);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = uint8_t(random());
  return bytes;
}

Digest digest_from_parts(Bytes bytes) {
  // All sums first: none needs the blocks before it.
  std::vector<Lanes> sums(num_blocks(bytes.size()));
  for (size_t b = 0; b < sums.size(); ++b) {
    for (size_t n = 0; n < kBlockStripes; ++n) {
      add_stripe(bytes.data() + b * kBlockBytes + n * kStripeBytes, n, &sums[b]);
    }
  }
  Lanes lanes = kStart;
  for (const Lanes& sum : sums) {
    for (size_t i = 0; i < kLanes; ++i) {
      lanes[i] = scrambled(lanes[i] + sum[i], secret()[kScrambleKey + i]);
    }
  }
  return finish(lanes, bytes.last(std::min(bytes.size(), kBlockBytes)), bytes.size());
}

TEST(Xxh3PartsTest, TheLibrarysDigestOfEverySize) {
  for (size_t size = 0; size <= 5 * kBlockBytes + 1; ++size) {
    const std::vector<uint8_t> bytes = some_bytes(size);
    ASSERT_EQ(digest_from_parts(bytes).hex(), digest_of(DigestKind::kXxh3_128, bytes).hex())
        << size;
  }
}

TEST(Xxh3PartsTest, LongInputs) {
  for (const size_t size : {65535, 65536, 65537, 1 << 20, 3'000'001}) {
    const std::vector<uint8_t> bytes = some_bytes(size);
    ASSERT_EQ(digest_from_parts(bytes).hex(), digest_of(DigestKind::kXxh3_128, bytes).hex())
        << size;
  }
}

}  // namespace
}  // namespace deltawire::xxh3
