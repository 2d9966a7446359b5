#include "store/retrying_store.h"

#include "conformance.h"
#include "fake_clock.h"
#include "faulty.h"
#include "store/memory_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

// A retrying store around one that fails as told, around one in memory.
struct RetryingRig {
  explicit RetryingRig(std::string_view spec, unsigned retries = 6)
      : memory(std::make_shared<MemoryStore>("rig")),
        faulty(std::make_shared<FaultyStore>(memory, faults(spec), clock.clock())),
        metrics(std::make_shared<StoreMetrics>()),
        store(faulty, RetryPolicy{retries, 1, 8}, metrics, clock.clock()) {}

  FakeClock clock;
  std::shared_ptr<MemoryStore> memory;
  std::shared_ptr<FaultyStore> faulty;
  std::shared_ptr<StoreMetrics> metrics;
  RetryingStore store;
};

OpenedStore retrying_memory(const char* spec) {
  auto clock = std::make_shared<FakeClock>();
  auto faulty = std::make_shared<FaultyStore>(std::make_shared<MemoryStore>(), faults(spec));
  RetryPolicy policy;
  policy.retries = 40;
  return {std::make_shared<RetryingStore>(faulty, policy, nullptr, clock->clock()), "", clock};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Retrying, StoreConformance,
                         ::testing::Values(StoreCase{[] { return retrying_memory(""); }}));
// A store that fails every third time, half of them after the work was done, keeps every promise.
INSTANTIATE_TEST_SUITE_P(RetryingFaulty, StoreConformance, ::testing::Values(StoreCase{[] {
                           return retrying_memory(
                               "unavailable:p=0.2:seed=5,duplicate:p=0.2:seed=6");
                         }}));

TEST(RetryPolicy, PausesDoubleUpToTheCap) {
  const RetryPolicy policy{6, 0.5, 4};
  EXPECT_EQ(longest_pause(policy, 0), 0.5);
  EXPECT_EQ(longest_pause(policy, 1), 1);
  EXPECT_EQ(longest_pause(policy, 3), 4);
  EXPECT_EQ(longest_pause(policy, 4), 4);
  EXPECT_EQ(longest_pause(policy, 4'000'000'000u), 4);
}

TEST(RetryPolicy, PausesAreRandomOverAllOfIt) {
  const RetryPolicy policy{6, 1, 8};
  double sum = 0, low = 8, high = 0;
  for (int i = 0; i < 1000; ++i) {
    const double pause = random_pause(policy, 3);
    ASSERT_TRUE(pause >= 0 && pause <= 8) << pause;
    sum += pause;
    low = std::min(low, pause);
    high = std::max(high, pause);
  }
  // Wrong by this much less often than once in 10^20 runs.
  EXPECT_NEAR(sum / 1000, 4, 0.8);
  EXPECT_LT(low, 1);
  EXPECT_GT(high, 7);
}

// Ctrl-C: the last answer counts, so that a put whose outcome is open stays open.
TEST(RetryingStore, StopsTryingWhenEverythingIsToEnd) {
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
    EXPECT_TRUE(is_failure(rig.store.put_if_absent("a", MemoryBody("x")), Code::kUnavailable));
    EXPECT_TRUE(rig.clock.sleeps().empty());
    EXPECT_TRUE(rig.memory->get("a", 10).ok());
    EXPECT_TRUE(rig.store.get("a", 10).ok());  // what has an answer has it
  }
  set_stop_request(nullptr);
}

TEST(RetryingStore, TriesAgainUntilItWorks) {
  RetryingRig rig("unavailable:times=3");
  EXPECT_TRUE(rig.store.put("a", MemoryBody("x")).ok());
  EXPECT_EQ(rig.clock.sleeps().size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_LE(rig.clock.sleeps()[i], double(1 << i));
  EXPECT_EQ(rig.metrics->counts(StoreOperation::kPut).retries, 3u);
  EXPECT_EQ(*rig.store.get("a", 10), "x");
  EXPECT_EQ(rig.metrics->total().retries, 3u);
}

TEST(RetryingStore, GivesUpAndSaysHowOftenItTried) {
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
  EXPECT_EQ(rig.metrics->total().retries, 14u);
}

TEST(RetryingStore, WithoutRetriesTheFailureIsLeftAsItIs) {
  RetryingRig rig("unavailable", 0);
  const Status status = rig.store.put("a", MemoryBody("x"));
  EXPECT_TRUE(is_failure(status, Code::kUnavailable));
  EXPECT_EQ(status.message().find("tried"), std::string::npos);
  EXPECT_TRUE(rig.clock.sleeps().empty());
}

TEST(RetryingStore, OnlyUnavailableIsWorthARetry) {
  for (const char* code : {"i-o-error", "corruption", "conflict", "not-found", "unsupported",
                           "invalid-argument", "cancelled", "internal-error"}) {
    RetryingRig rig("fail:times=1:code=" + std::string(code));
    const Status status = rig.store.put("a", MemoryBody("x"));
    EXPECT_FALSE(status.ok()) << code;
    EXPECT_NE(status.code(), Code::kUnavailable) << code;
    EXPECT_TRUE(rig.clock.sleeps().empty()) << code;
  }
}

TEST(RetryingStore, ItsOwnLostPutIfAbsentIsASuccess) {
  RetryingRig rig("duplicate:n=1:op=put-if-absent");
  EXPECT_TRUE(rig.store.put_if_absent("v/1", MemoryBody("mine")).ok());
  EXPECT_EQ(*rig.memory->get("v/1", 10), "mine");
  EXPECT_TRUE(is_failure(rig.store.put_if_absent("v/1", MemoryBody("mine")), Code::kConflict));
}

TEST(RetryingStore, AnothersPutIfAbsentIsAConflict) {
  for (const char* theirs : {"them", "theirs", ""}) {  // of our size, longer, empty
    RetryingRig rig("unavailable:n=1:op=put-if-absent");
    ASSERT_TRUE(rig.memory->put("v/1", MemoryBody(theirs)).ok());
    EXPECT_TRUE(is_failure(rig.store.put_if_absent("v/1", MemoryBody("mine")), Code::kConflict));
    EXPECT_EQ(*rig.memory->get("v/1", 10), theirs);
  }
}

TEST(RetryingStore, AConflictAtTheFirstTryIsNotLookedInto) {
  RetryingRig rig("fail:op=get+stat+read:code=internal-error");
  ASSERT_TRUE(rig.memory->put("v/1", MemoryBody("mine")).ok());
  EXPECT_TRUE(is_failure(rig.store.put_if_absent("v/1", MemoryBody("mine")), Code::kConflict));
}

TEST(RetryingStore, WhenItCannotLookItDoesNotGuess) {
  RetryingRig rig("duplicate:n=1:op=put-if-absent,unavailable:op=get+stat");
  EXPECT_TRUE(is_failure(rig.store.put_if_absent("v/1", MemoryBody("mine")), Code::kUnavailable));
  RetryingRig broken("duplicate:n=1:op=put-if-absent,fail:op=get+stat");
  EXPECT_TRUE(is_failure(broken.store.put_if_absent("v/1", MemoryBody("mine")), Code::kIo));
}

}  // namespace deltawire::testing
