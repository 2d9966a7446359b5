// Stores around other stores: retries, limits, counters. Each keeps the promises of a store.
#include "conformance.h"
#include "fake_clock.h"
#include "faulty.h"
#include "store/memory_store.h"
#include "store/rate_limited_store.h"
#include "store/retrying_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

std::shared_ptr<Store> faulty_memory(const char* spec) {
  return std::make_shared<FaultyStore>(std::make_shared<MemoryStore>(), faults(spec));
}

OpenedStore retrying_memory(const char* spec) {
  auto clock = std::make_shared<FakeClock>();
  const RetryPolicy policy{.retries = 40};
  return {std::make_shared<RetryingStore>(faulty_memory(spec), policy, clock->clock()), "", clock};
}

StoreCase around_memory(std::function<std::shared_ptr<Store>()> make) {
  return {[make = std::move(make)] { return OpenedStore{make(), ""}; }};
}

INSTANTIATE_TEST_SUITE_P(
    Memory, StoreConformance,
    ::testing::Values(around_memory([] { return std::make_shared<MemoryStore>(); }),
                      around_memory([] {
                        return std::make_shared<RateLimitedStore>(std::make_shared<MemoryStore>(),
                                                                  uint64_t{1} << 40);
                      })));
// Before a crash, a store that loses all or half of its writes behaves like any other.
INSTANTIATE_TEST_SUITE_P(
    Faulty, StoreConformance,
    ::testing::Values(around_memory([] { return faulty_memory(""); }),
                      around_memory([] { return faulty_memory("lost"); }),
                      around_memory([] { return faulty_memory("lost:p=0.5"); }),
                      around_memory([] { return faulty_memory("slow:ms=0.01"); })));
// A store that fails every third time, half of them after doing the work, keeps every promise.
INSTANTIATE_TEST_SUITE_P(Retrying, StoreConformance,
                         ::testing::Values(StoreCase{[] { return retrying_memory(""); }},
                                           StoreCase{[] {
                                             return retrying_memory(
                                                 "unavailable:p=0.2:seed=5,duplicate:p=0.2:seed=6");
                                           }}));

// ---- retries

// A retrying store around a faulty store around a memory store.
struct RetryingRig {
  explicit RetryingRig(std::string_view spec, unsigned retries = 6)
      : memory(std::make_shared<MemoryStore>("rig")),
        faulty(std::make_shared<FaultyStore>(memory, faults(spec), clock.clock())),
        store(faulty, RetryPolicy{retries, 1, 8}, clock.clock()) {}

  FakeClock clock;
  std::shared_ptr<MemoryStore> memory;
  std::shared_ptr<FaultyStore> faulty;
  RetryingStore store;
};

TEST(RetryPolicy, PausesDoubleUpToTheCap) {
  const RetryPolicy policy{6, 0.5, 4};
  EXPECT_EQ(longest_pause(policy, 0), 0.5);
  EXPECT_EQ(longest_pause(policy, 1), 1);
  EXPECT_EQ(longest_pause(policy, 3), 4);
  EXPECT_EQ(longest_pause(policy, 4), 4);
  EXPECT_EQ(longest_pause(policy, 4'000'000'000u), 4);
}

TEST(RetryPolicy, PausesAreUniformlyRandom) {
  const RetryPolicy policy{6, 1, 8};
  double sum = 0, low = 8, high = 0;
  for (int i = 0; i < 1000; ++i) {
    const double pause = random_pause(policy, 3);
    ASSERT_TRUE(pause >= 0 && pause <= 8) << pause;
    sum += pause;
    low = std::min(low, pause);
    high = std::max(high, pause);
  }
  // The probability of a wrong failure is below 10^-20.
  EXPECT_NEAR(sum / 1000, 4, 0.8);
  EXPECT_LT(low, 1);
  EXPECT_GT(high, 7);
}

// Ctrl-C: the last answer is returned, so that a put with an unknown outcome stays unknown.
TEST(RetryingStore, StopsRetryingOnShutdown) {
  static bool stop;
  stop = false;
  set_stop_request([] { return stop; });
  {
    RetryingRig rig("unavailable:n=1");
    EXPECT_TRUE(rig.store.put("a", MemoryBody("x")).ok());
    EXPECT_GE(rig.clock.sleeps().size(), 1u);
  }
  stop = true;
  {
    RetryingRig rig("duplicate");
    EXPECT_FAILS(rig.store.put_if_absent("a", MemoryBody("x")), kUnavailable);
    EXPECT_TRUE(rig.clock.sleeps().empty());
    EXPECT_TRUE(rig.memory->get("a", 10).ok());
    EXPECT_TRUE(rig.store.get("a", 10).ok());  // what has an answer has it
  }
  set_stop_request(nullptr);
}

TEST(RetryingStore, RetriesUntilSuccess) {
  RetryingRig rig("unavailable:times=3");
  EXPECT_TRUE(rig.store.put("a", MemoryBody("x")).ok());
  EXPECT_EQ(rig.clock.sleeps().size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_LE(rig.clock.sleeps()[i], double(1 << i));
  EXPECT_EQ(*rig.store.get("a", 10), "x");
}

TEST(RetryingStore, ReportsTheNumberOfAttempts) {
  RetryingRig rig("unavailable", 2);
  uint8_t byte;
  const auto gave_up = [](const Status& status) {
    return is_failure(status, Code::kUnavailable, "injected fault", "(tried 3 times)");
  };
  EXPECT_TRUE(gave_up(rig.store.put("a", MemoryBody("x"))));
  EXPECT_TRUE(gave_up(rig.store.put_if_absent("a", MemoryBody("x"))));
  EXPECT_TRUE(gave_up(rig.store.stat("a").status()));
  EXPECT_TRUE(gave_up(rig.store.get("a", 1).status()));
  EXPECT_TRUE(gave_up(rig.store.read("a", 0, {&byte, 1})));
  EXPECT_TRUE(gave_up(rig.store.list("", "", 1).status()));
  EXPECT_TRUE(gave_up(rig.store.remove("a")));
  EXPECT_EQ(rig.clock.sleeps().size(), 14u);
}

TEST(RetryingStore, WithoutRetriesReturnsTheOriginalFailure) {
  RetryingRig rig("unavailable", 0);
  const Status status = rig.store.put("a", MemoryBody("x"));
  EXPECT_FAILS(status, kUnavailable);
  EXPECT_FALSE(contains(status.message(), "tried"));
  EXPECT_TRUE(rig.clock.sleeps().empty());
}

TEST(RetryingStore, RetriesOnlyUnavailable) {
  for (const char* code : {"i-o-error", "corruption", "conflict", "not-found", "unsupported",
                           "invalid-argument", "cancelled", "internal-error"}) {
    RetryingRig rig("fail:times=1:code=" + std::string(code));
    const Status status = rig.store.put("a", MemoryBody("x"));
    EXPECT_FALSE(status.ok()) << code;
    EXPECT_NE(status.code(), Code::kUnavailable) << code;
    EXPECT_TRUE(rig.clock.sleeps().empty()) << code;
  }
}

TEST(RetryingStore, RecognisesItsOwnLostPutIfAbsent) {
  RetryingRig rig("duplicate:n=1:op=put-if-absent");
  EXPECT_TRUE(rig.store.put_if_absent("v/1", MemoryBody("mine")).ok());
  EXPECT_EQ(*rig.memory->get("v/1", 10), "mine");
  EXPECT_FAILS(rig.store.put_if_absent("v/1", MemoryBody("mine")), kConflict);
}

TEST(RetryingStore, PutIfAbsentOfAnotherWriterIsAConflict) {
  for (const char* theirs : {"them", "theirs", ""}) {  // of our size, longer, empty
    RetryingRig rig("unavailable:n=1:op=put-if-absent");
    ASSERT_TRUE(rig.memory->put("v/1", MemoryBody(theirs)).ok());
    EXPECT_FAILS(rig.store.put_if_absent("v/1", MemoryBody("mine")), kConflict);
    EXPECT_EQ(*rig.memory->get("v/1", 10), theirs);
  }
}

TEST(RetryingStore, FirstConflictNeedsNoReadBack) {
  RetryingRig rig("fail:op=get+stat+read:code=internal-error");
  ASSERT_TRUE(rig.memory->put("v/1", MemoryBody("mine")).ok());
  EXPECT_FAILS(rig.store.put_if_absent("v/1", MemoryBody("mine")), kConflict);
}

TEST(RetryingStore, UnreadableStateIsNotGuessed) {
  RetryingRig rig("duplicate:n=1:op=put-if-absent,unavailable:op=get+stat");
  EXPECT_FAILS(rig.store.put_if_absent("v/1", MemoryBody("mine")), kUnavailable);
  RetryingRig broken("duplicate:n=1:op=put-if-absent,fail:op=get+stat");
  EXPECT_FAILS(broken.store.put_if_absent("v/1", MemoryBody("mine")), kIo);
}

// ---- limits

// Reads each body twice in pieces of different sizes, like a store that signs its uploads.
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

// Returns the time that `use` takes with a store limited to 1000 bytes per second.
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

TEST(TokenBucket, LimitsTheRate) {
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

TEST(RateLimitedStore, LimitsUploadsAndDownloads) {
  const std::string text(5000, 'x');
  EXPECT_NEAR(time_of([&](Store& s) { EXPECT_TRUE(s.put("a", MemoryBody(text)).ok()); }), 5, 1e-6);
  EXPECT_NEAR(time_of([&](Store& s) { EXPECT_TRUE(s.put_if_absent("a", MemoryBody(text)).ok()); }),
              5, 1e-6);
  EXPECT_NEAR(time_of([&](Store& s) { EXPECT_TRUE(s.get("1000", 1000).ok()); }), 1, 1e-6);
  std::vector<uint8_t> out(300);
  EXPECT_NEAR(time_of([&](Store& s) { EXPECT_TRUE(s.read("1000", 7, out).ok()); }), 0.3, 1e-6);
  BytesSink sink(1000);
  EXPECT_NEAR(time_of([&](Store& s) { EXPECT_TRUE(s.download("1000", 1000, &sink).ok()); }), 1,
              1e-6);
  EXPECT_NEAR(time_of([&](Store& s) {
                EXPECT_TRUE(s.put("a", MemoryBody(text)).ok());
                EXPECT_TRUE(s.get("1000", 1000).ok());
                EXPECT_TRUE(s.stat("a").ok() && s.list("", "", 9).ok() && s.remove("a").ok());
              }),
              6, 1e-6);
}

TEST(RateLimitedStore, DoesNotCountReadsForAChecksum) {
  FakeClock clock;
  RateLimitedStore store(std::make_shared<HashingStore>(std::make_shared<MemoryStore>()), 1000,
                         BodyReads::kTwice, clock.clock());
  const std::string text(5000, 'x');
  ASSERT_TRUE(store.put("a", MemoryBody(text)).ok());
  EXPECT_NEAR(clock.now(), 1005, 1e-6);
}

}  // namespace
}  // namespace deltawire::testing
