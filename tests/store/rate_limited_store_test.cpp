#include "store/rate_limited_store.h"

#include "conformance.h"
#include "fake_clock.h"
#include "store/memory_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

// Reads each body twice in pieces of different sizes, as a store does that signs what it sends.
class HashingStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  Status put(std::string_view name, const Body& body) override {
    DW_RETURN_IF_ERROR(read_all(body, 700));
    DW_RETURN_IF_ERROR(read_all(body, 300));
    return inner().put(name, MemoryBody(""));
  }

 private:
  static Status read_all(const Body& body, size_t piece) {
    std::vector<uint8_t> bytes(piece);
    for (uint64_t at = 0; at < body.size(); at += piece) {
      const size_t size = size_t(std::min<uint64_t>(piece, body.size() - at));
      DW_RETURN_IF_ERROR(body.read(at, std::span(bytes).first(size)));
    }
    return {};
  }
};

// Time that a use of a store limited to 1000 bytes per second takes.
double time_of(const std::function<void(Store&)>& use) {
  FakeClock clock;
  auto memory = std::make_shared<MemoryStore>();
  const std::string object(1000, 'x');
  EXPECT_TRUE(memory->put("1000", MemoryBody(object)).ok());
  RateLimitedStore store(memory, 1000, BodyReads::kOnce, clock.clock());
  const double start = clock.now();
  use(store);
  return clock.now() - start;
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(RateLimited, StoreConformance, ::testing::Values(StoreCase{[] {
                           return OpenedStore{
                               std::make_shared<RateLimitedStore>(std::make_shared<MemoryStore>(),
                                                                  uint64_t{1} << 40),
                               ""};
                         }}));

TEST(TokenBucket, LetsThroughWhatItMay) {
  FakeClock clock;
  TokenBucket bucket(1000, clock.clock());
  for (int i = 0; i < 100; ++i) bucket.take(50);
  EXPECT_NEAR(clock.now(), 1005, 1e-6);
  clock.advance(1000);  // unused time is not saved up, but for a tenth of a second
  bucket.take(100);
  EXPECT_NEAR(clock.now(), 2005, 1e-6);
  bucket.take(100);
  EXPECT_NEAR(clock.now(), 2005.1, 1e-6);
  bucket.take(0);
  EXPECT_NEAR(clock.now(), 2005.1, 1e-6);
}

TEST(RateLimitedStore, BytesTakeTheirTimeBothWays) {
  const std::string text(5000, 'x');
  EXPECT_NEAR(time_of([&](Store& s) { EXPECT_TRUE(s.put("a", MemoryBody(text)).ok()); }), 5, 1e-6);
  EXPECT_NEAR(time_of([&](Store& s) { EXPECT_TRUE(s.put_if_absent("a", MemoryBody(text)).ok()); }),
              5, 1e-6);
  EXPECT_NEAR(time_of([&](Store& s) { EXPECT_TRUE(s.get("1000", 1000).ok()); }), 1, 1e-6);
  std::vector<uint8_t> out(300);
  EXPECT_NEAR(time_of([&](Store& s) { EXPECT_TRUE(s.read("1000", 7, out).ok()); }), 0.3, 1e-6);
  NoSink sink;
  EXPECT_NEAR(time_of([&](Store& s) { EXPECT_TRUE(s.download("1000", 1000, &sink).ok()); }), 1,
              1e-6);
  EXPECT_NEAR(time_of([&](Store& s) {
                EXPECT_TRUE(s.put("a", MemoryBody(text)).ok());
                EXPECT_TRUE(s.get("1000", 1000).ok());
                EXPECT_TRUE(s.stat("a").ok() && s.list("", "", 9).ok() && s.remove("a").ok());
              }),
              6, 1e-6);
}

TEST(RateLimitedStore, WhatIsReadForAChecksumIsNotSent) {
  FakeClock clock;
  RateLimitedStore store(std::make_shared<HashingStore>(std::make_shared<MemoryStore>()), 1000,
                         BodyReads::kTwice, clock.clock());
  const std::string text(5000, 'x');
  ASSERT_TRUE(store.put("a", MemoryBody(text)).ok());
  EXPECT_NEAR(clock.now(), 1005, 1e-6);
}

}  // namespace deltawire::testing
