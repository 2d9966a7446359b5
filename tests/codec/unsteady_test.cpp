// Arrays that another thread modifies while they are encoded: payload, digests and sums agree on
// the values that were read.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "codec/choose.h"
#include "codec/codec.h"
#include "digest/parallel.h"
#include "test_files.h"

namespace deltawire {
namespace {

constexpr Layout kUnsteadyLayout{2, 7, 0xff};
constexpr uint64_t kBegin = 24;

std::vector<uint8_t> weights(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<uint8_t> bytes(2 * n);
  for (size_t i = 0; i < n; ++i) {
    const float value = normal(random);
    std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const uint8_t*>(&value) + 2, 2);
  }
  return bytes;
}

void step(std::vector<uint8_t>* bytes, double density, uint32_t seed) {
  std::mt19937 random(seed);
  std::bernoulli_distribution changes(density);
  for (size_t i = 0; i < bytes->size(); i += 2) {
    if (changes(random)) (*bytes)[i] ^= 1;
  }
}

struct Seen {
  Hasher old_hasher{DigestKind::kSum128}, new_hasher{DigestKind::kSum128};
  SharedSums old_sums, new_sums;
  std::optional<Encoded> encoded;

  Seen(Bytes before, Bytes after, bool old_too, ThreadPool* pool) {
    auto made = encode_changing(kUnsteadyLayout, before, after, {&old_hasher, &new_hasher},
                                {old_too, true, &old_sums, &new_sums, kBegin}, true, pool);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    encoded = std::move(*made);
  }
};

class UnsteadyTest : public ::testing::TestWithParam<double> {};

TEST_P(UnsteadyTest, StableArraysGiveTheUsualPayload) {
  ThreadPool pool(3);
  for (const size_t n : {size_t{300'000}, size_t{1'000'003}, size_t{3} << 18}) {
    const std::vector<uint8_t> before = weights(n, 1);
    std::vector<uint8_t> after = before;
    step(&after, GetParam(), 2);
    for (ThreadPool* const threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      for (const bool old_too : {false, true}) {
        Seen seen(before, after, old_too, threads);
        ASSERT_TRUE(seen.encoded);
        const auto usual = tight_codec().encode(kUnsteadyLayout, before, after, nullptr);
        ASSERT_TRUE(usual.ok());
        EXPECT_EQ(seen.encoded->payload, usual->payload);
        EXPECT_EQ(seen.encoded->num_changed, usual->num_changed);
        EXPECT_EQ(seen.old_hasher.finish(), digest_of(DigestKind::kSum128, before));
        EXPECT_EQ(seen.new_hasher.finish(), digest_of(DigestKind::kSum128, after));
        EXPECT_EQ(seen.old_sums.all(), sums_of(before, kBegin, nullptr));
        EXPECT_EQ(seen.new_sums.all(), sums_of(after, kBegin, nullptr));
      }
    }
  }
}

// 0: no changes. The next: no change in any of the blocks that the tables are fitted to.
INSTANTIATE_TEST_SUITE_P(Densities, UnsteadyTest, ::testing::Values(0.0, 0.00001, 0.01, 0.1));

TEST(ChangingArrays, DetectOneChangeInAnyBlock) {
  const std::vector<uint8_t> before = weights(size_t{5} << 18, 1);
  for (size_t block = 0; block < 5; ++block) {
    std::vector<uint8_t> after = before;
    after[(block << 19) + 777] ^= 1;
    Seen seen(before, after, true, nullptr);
    ASSERT_TRUE(seen.encoded);
    EXPECT_EQ(seen.encoded->num_changed, 1);
    std::vector<uint8_t> patched = before;
    ASSERT_TRUE(tight_codec().apply(kUnsteadyLayout, seen.encoded->payload, patched, nullptr).ok());
    EXPECT_EQ(patched, after);
  }
}

TEST(ChangingArrays, SmallArraysAreCopied) {
  const std::vector<uint8_t> before = weights(size_t{1} << 18, 1);
  std::vector<uint8_t> after = before;
  step(&after, 0.01, 2);
  EXPECT_FALSE(Seen(before, after, true, nullptr).encoded);
}

TEST(ChangingArrays, DigestsMatchThePayload) {
  DW_LABEL(races);
  const std::vector<uint8_t> before = weights(size_t{4} << 18, 1);
  std::vector<uint8_t> after = before;
  step(&after, 0.01, 2);
  std::atomic<bool> stop{false};
  ThreadPool pool(2);
  std::thread writer([&] {
    std::mt19937 random(3);
    while (!stop) {
      __atomic_fetch_xor(&after[random() % after.size() & ~size_t{1}], uint8_t{1},
                         __ATOMIC_RELAXED);
    }
  });
  for (int round = 0; round < 10; ++round) {
    Seen seen(before, after, false, &pool);
    ASSERT_TRUE(seen.encoded);
    std::vector<uint8_t> patched = before;
    ASSERT_TRUE(tight_codec().apply(kUnsteadyLayout, seen.encoded->payload, patched, nullptr).ok());
    EXPECT_EQ(digest_of(DigestKind::kSum128, patched), seen.new_hasher.finish());
    EXPECT_EQ(sums_of(patched, kBegin, nullptr), seen.new_sums.all());
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace deltawire
