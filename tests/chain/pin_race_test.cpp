// Pins and gc, request by request: in every order of their requests, a pin that succeeded keeps
// its version.

#include <condition_variable>

#include "chain/retention.h"
#include "store/forwarding_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

constexpr size_t kAll = SIZE_MAX;
constexpr uint64_t kPinned = 8;  // reached from version 6, which gc would remove, too

// The number of requests that each actor may make, one actor after the other.
struct Turn {
  size_t actor;
  size_t requests;
};

// Orders the requests of several actors by a schedule; after it, each runs to its end in turn.
class Schedule {
 public:
  Schedule(std::vector<Turn> turns, size_t num_actors) : turns_(std::move(turns)) {
    for (size_t actor = 0; actor < num_actors; ++actor) turns_.push_back({actor, kAll});
    over_.resize(num_actors, false);
    made_.resize(num_actors, 0);
    skip();
  }
  // One request of an actor: waits for its turn, and holds it until `request` is done.
  template <class Request>
  auto let(size_t actor, const Request& request) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turns_[at_].actor == actor; });
    ++made_[actor];
    auto result = request();
    if (turns_[at_].requests != kAll) --turns_[at_].requests;
    skip();
    return result;
  }
  void end(size_t actor) {
    const std::lock_guard lock(mutex_);
    over_[actor] = true;
    skip();
  }
  size_t made(size_t actor) const { return made_[actor]; }

 private:
  // Wakes the others only for a new turn: with every request it would take most of the time.
  void skip() {
    const size_t before = at_;
    while (at_ + 1 < turns_.size() && (turns_[at_].requests == 0 || over_[turns_[at_].actor]))
      ++at_;
    if (at_ != before) changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Turn> turns_;
  std::vector<bool> over_;
  std::vector<size_t> made_;
  size_t at_ = 0;
};

class ScheduledStore final : public ForwardingStore {
 public:
  ScheduledStore(std::shared_ptr<Store> inner, Schedule* schedule, size_t actor)
      : ForwardingStore(std::move(inner)), schedule_(*schedule), actor_(actor) {}
  Status put(std::string_view name, const Body& body) override {
    return schedule_.let(actor_, [&] { return inner().put(name, body); });
  }
  Result<ObjectInfo> stat(std::string_view name) override {
    return schedule_.let(actor_, [&] { return inner().stat(name); });
  }
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    return schedule_.let(actor_, [&] { return inner().get(name, max_bytes); });
  }
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view after,
                                       size_t limit) override {
    return schedule_.let(actor_, [&] { return inner().list(prefix, after, limit); });
  }
  Status remove(std::string_view name) override {
    return schedule_.let(actor_, [&] { return inner().remove(name); });
  }

 private:
  Schedule& schedule_;
  const size_t actor_;
};

// Versions 0 ... 11; whole at 0, 6 and 10.
class PinRace : public ::testing::Test {
 protected:
  enum class Actor : uint8_t { kGc, kPin };

  PinRace() {
    for (int v = 0; v < 12; ++v) real_.publish_step(v == 6 || v == 10);
    EXPECT_TRUE(list_all(*real_.memory, "", "", [&](const ObjectInfo& object) {
                  objects_.emplace_back(object.name,
                                        real_.memory->get(object.name, 1 << 20).value());
                  return true;
                }).ok());
  }

  // Returns the number of requests that each actor made.
  std::vector<size_t> play(const std::vector<Actor>& actors, const std::vector<Turn>& turns) {
    const auto memory = std::make_shared<MemoryStore>();
    for (const auto& [name, bytes] : objects_)
      EXPECT_TRUE(memory->put(name, MemoryBody(bytes)).ok());
    const Chain after = Chain::open(memory, {}).value();
    Schedule schedule(turns, actors.size());
    std::vector<Status> outcomes(actors.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < actors.size(); ++i) {
      const auto store = std::make_shared<ScheduledStore>(memory, &schedule, i);
      threads.emplace_back([&, i, store] {
        const Result<Chain> chain = Chain::open(store, {});
        EXPECT_TRUE(chain.ok());
        outcomes[i] =
            actors[i] == Actor::kGc ? chain->collect_garbage({1, 0}).status() : chain->pin(kPinned);
        schedule.end(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
    bool pinned = false;
    for (size_t i = 0; i < actors.size(); ++i) {
      const Status& outcome = outcomes[i];
      if (actors[i] == Actor::kGc) {
        EXPECT_TRUE(outcome.ok()) << outcome.to_string();
        continue;
      }
      pinned = pinned || outcome.ok();
      ++(outcome.ok() ? num_pinned_ : num_refused_);
      EXPECT_TRUE(outcome.ok() || outcome.code() == Code::kConflict ||
                  outcome.code() == Code::kNotFound)
          << outcome.to_string();
    }
    // Later collections must not remove it either.
    for (const int64_t later : {1, 2}) {
      memory->set_clock(unix_seconds() + later);
      EXPECT_TRUE(after.collect_garbage({1, 0}).ok());
    }
    if (pinned) {
      const Result<Plan> plan = plan_catch_up(after, {}, kPinned);
      EXPECT_TRUE(plan.ok()) << plan.status().to_string();
      const auto state = plan.ok() ? follow_plan(*memory, *plan, {}) : plan.status();
      EXPECT_TRUE(state.ok() && *state == real_.states[kPinned]) << "the pin was lost";
    }
    std::vector<size_t> made;
    for (size_t i = 0; i < actors.size(); ++i) made.push_back(schedule.made(i));
    return made;
  }

  TestChain real_;
  std::vector<std::pair<std::string, std::string>> objects_;
  size_t num_pinned_ = 0, num_refused_ = 0;
};

TEST_F(PinRace, EveryOrderOfOnePinAndOneGc) {
  DW_LABEL(long);
  const std::vector<Actor> actors = {Actor::kGc, Actor::kPin};
  const std::vector<size_t> most = play(actors, {{0, kAll}, {1, kAll}});
  const std::vector<size_t> pins = play(actors, {{1, kAll}, {0, kAll}});
  for (size_t gc = 0; gc <= most[0]; ++gc) {
    for (size_t pin = 1; pin <= pins[1] + 1; ++pin) {  // one that is refused reads a note more
      SCOPED_TRACE(std::to_string(gc) + " of gc, " + std::to_string(pin) + " of pin");
      play(actors, {{0, gc}, {1, pin}, {0, kAll}, {1, kAll}});
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(num_pinned_, 10U);
  EXPECT_GT(num_refused_, 10U);
}

// A refused pin must not remove another pin of the same version.
TEST_F(PinRace, EveryOrderOfTwoPinsAndOneGc) {
  DW_LABEL(long);
  const std::vector<Actor> actors = {Actor::kGc, Actor::kPin, Actor::kPin};
  const std::vector<size_t> most = play(actors, {{0, kAll}, {1, kAll}, {2, kAll}});
  const std::vector<size_t> pins = play(actors, {{1, kAll}, {2, kAll}, {0, kAll}});
  for (size_t gc = 0; gc <= most[0]; ++gc) {
    for (size_t pin = 1; pin <= pins[1] + 1; ++pin) {  // one that is refused reads a note more
      SCOPED_TRACE(std::to_string(gc) + " of gc, " + std::to_string(pin) + " of a pin");
      play(actors, {{0, gc}, {1, pin}, {0, kAll}, {2, kAll}, {1, kAll}});
      play(actors, {{0, gc}, {1, pin}, {2, kAll}, {0, kAll}, {1, kAll}});
      if (HasFailure()) return;
    }
  }
}

// One gc deletes notes while the other still acts on its own.
TEST_F(PinRace, EveryOrderOfAPinBetweenTwoGcs) {
  DW_LABEL(long);
  const std::vector<Actor> actors = {Actor::kGc, Actor::kGc, Actor::kPin};
  const std::vector<size_t> most = play(actors, {{0, kAll}, {1, kAll}, {2, kAll}});
  for (size_t first = 0; first <= most[0]; ++first) {
    for (size_t second = 0; second <= most[1] + 1; ++second) {
      SCOPED_TRACE(std::to_string(first) + " of one gc, " + std::to_string(second) +
                   " of the other");
      const size_t turn = second <= most[1] ? second : kAll;
      play(actors, {{0, first}, {1, turn}, {2, kAll}, {0, kAll}, {1, kAll}});
      if (HasFailure()) return;
    }
  }
}

// A second pin that fails at any point leaves the first in place.
TEST_F(PinRace, FailedSecondPinKeepsTheFirst) {
  TestChain& real = real_;
  ASSERT_TRUE(real.chain.pin(kPinned).ok());
  for (int64_t n = 0;; ++n) {
    int64_t left = n;
    bool failed = false;
    real.hooks->before = [&](std::string_view, std::string_view) -> Status {
      if (left-- != 0) return {};
      failed = true;
      return unavailable("told so");
    };
    const Status outcome = real.chain.pin(kPinned);
    real.hooks->before = {};
    EXPECT_EQ(list_pins(*real.memory).value(), (std::vector<uint64_t>{kPinned})) << n;
    if (!failed) break;
    ASSERT_LT(n, 100);
  }
}

// An unreadable note may belong to a running gc.
TEST_F(PinRace, UnreadableNoteRefusesAPin) {
  ASSERT_TRUE(real_.memory->put("trash/0000000001-x.json", MemoryBody("{}")).ok());
  EXPECT_TRUE(
      testing::is_failure(real_.chain.pin(kPinned), Code::kUnsupported,
                          "trash/0000000001-x.json") ||
      testing::is_failure(real_.chain.pin(kPinned), Code::kCorruption, "trash/0000000001-x.json"));
  EXPECT_TRUE(list_pins(*real_.memory)->empty());
}

// The records that lead to a pinned version may be unreadable for a moment only.
TEST_F(PinRace, KeepsAnUnreadableAnchorForThePin) {
  ASSERT_TRUE(real_.chain.pin(kPinned).ok());
  real_.hooks->before = [](std::string_view call, std::string_view name) -> Status {
    const bool anchor = name == manifest_name(6) || name == manifest_name(0);
    return call == "get" && anchor ? corruption("a bit was wrong") : Status();
  };
  ASSERT_TRUE(real_.chain.collect_garbage({1, 0}).ok());
  real_.memory->set_clock(unix_seconds() + 1);
  ASSERT_TRUE(real_.chain.collect_garbage({1, 0}).ok());
  real_.hooks->before = {};
  const Plan plan = must(plan_catch_up(real_.chain, {}, kPinned));
  EXPECT_EQ(follow_plan(*real_.memory, plan, {}).value(), real_.states[kPinned]);
}

}  // namespace
}  // namespace deltawire::testing
