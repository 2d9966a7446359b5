// Carriers that damage, lose or hold up what they carry; members that say one thing and do another.
#include <latch>

#include "carrier/backend.h"
#include "carrier/hub.h"
#include "chain/heartbeat.h"
#include "fleet.h"
#include "ship/messages.h"
#include "store/faulty_store.h"
#include "store/forwarding_store.h"

namespace deltawire::testing {
namespace {

// What happens to a bucket on its way to a rank; its answer counts unless it is Ok.
using Trick = std::function<Status(unsigned rank, std::span<uint8_t> bytes)>;

class TrickyCarrier final : public Carrier {
 public:
  TrickyCarrier(std::unique_ptr<Carrier> inner, Trick trick)
      : inner_(std::move(inner)), trick_(std::move(trick)) {}
  std::string name() const override { return "tricky"; }
  unsigned rank() const noexcept override { return inner_->rank(); }
  unsigned size() const noexcept override { return inner_->size(); }
  Status exchange(std::span<const ToRank> to, std::span<const FromRank> from,
                  double timeout_seconds) override {
    return inner_->exchange(to, from, timeout_seconds);
  }
  Status broadcast(unsigned root, std::span<uint8_t> bytes, double timeout_seconds) override {
    DW_RETURN_IF_ERROR(inner_->broadcast(root, bytes, timeout_seconds));
    return trick_(rank(), bytes);
  }
  std::vector<unsigned> lost() const override { return inner_->lost(); }
  void abort() noexcept override { inner_->abort(); }

 private:
  const std::unique_ptr<Carrier> inner_;
  const Trick trick_;
};

// TCP, with a trick at its end.
class TrickyBackend final : public Backend {
 public:
  explicit TrickyBackend(Trick trick) : trick_(std::move(trick)) {}
  std::string name() const override { return "tricky"; }
  Result<std::unique_ptr<Gathering>> open(const GroupOptions& options,
                                          double timeout_seconds) override {
    DW_ASSIGN_OR_RETURN(const auto tcp, find_backend("tcp"));
    return tcp->open(options, timeout_seconds);
  }
  Result<std::unique_ptr<Carrier>> enter(const std::string& ticket, unsigned rank,
                                         const GroupOptions& options,
                                         double timeout_seconds) override {
    DW_ASSIGN_OR_RETURN(const auto tcp, find_backend("tcp"));
    DW_ASSIGN_OR_RETURN(auto carrier, tcp->enter(ticket, rank, options, timeout_seconds));
    return std::unique_ptr<Carrier>(std::make_unique<TrickyCarrier>(std::move(carrier), trick_));
  }

 private:
  const Trick trick_;
};

struct TrickyFleet {
  explicit TrickyFleet(Trick trick) {
    add_backend(std::make_shared<TrickyBackend>(std::move(trick)));
    ShipOptions how = Trainer::quick();
    how.backend = "tricky";
    trainer.emplace(how);
    for (int i = 0; i < 3; ++i) {
      replicas.emplace_back(joining(trainer->shipper->address(), "replica-" + std::to_string(i)),
                            trainer->model);
    }
    EXPECT_TRUE(trainer->shipper->wait_for(3, kPatience).ok());
  }
  void expect_all_hold(uint64_t version) {
    for (FollowingReplica& replica : replicas) {
      ASSERT_TRUE(replica.wait_for_version(version)) << replica.error();
      EXPECT_TRUE(replica.memory.is(trainer->model));
    }
  }
  std::optional<Trainer> trainer;
  std::deque<FollowingReplica> replicas;
};

TEST(ShipFailures, BitsThatFlipOnTheWireAreFoundNamedAndReadAgain) {
  TrickyFleet fleet([](unsigned rank, std::span<uint8_t> bytes) -> Status {
    if (rank == 2 && !bytes.empty()) bytes[bytes.size() / 2] ^= 0x10;
    return {};
  });
  bool named = false;  // not where the replica has read a version before it looks at what came
  for (uint64_t version = 0; version < 3; ++version) {
    const ShipReport report = fleet.trainer->step();
    fleet.expect_all_hold(version);
    for (const std::string& warning : report.warnings) {
      named |= warning.find("arrived damaged") != std::string::npos;
    }
    for (const Shipped& one : report.replicas) EXPECT_EQ(one.version, version) << one.error;
  }
  EXPECT_TRUE(named);
}

TEST(ShipFailures, ARankThatDropsOutOfTheGroupGetsEverythingAllTheSame) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  TrickyFleet fleet([calls](unsigned rank, std::span<uint8_t>) -> Status {
    if (rank == 1 && ++*calls % 2 == 0) return unavailable("a trick");
    return {};
  });
  for (uint64_t version = 0; version < 5; ++version) {
    fleet.trainer->step();
    fleet.expect_all_hold(version);
  }
  EXPECT_GT(fleet.trainer->shipper->report().epoch, 1);
}

TEST(ShipFailures, AVersionWhoseAnswerWasLostIsShippedAllTheSame) {
  const auto lost = parse_faults("duplicate:op=put-if-absent:name=manifests/");
  const auto store = std::make_shared<FaultyStore>(std::make_shared<MemoryStore>("t"), *lost);
  Trainer trainer(Trainer::quick(), {}, store);
  FollowingReplica replica(joining(trainer.shipper->address()), trainer.model);
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  for (uint64_t version = 0; version < 3; ++version) {
    const ShipReport report = trainer.step();
    EXPECT_EQ(report.version, version);
    ASSERT_EQ(report.replicas.size(), 1u);
    EXPECT_EQ(report.replicas[0].version, version) << report.replicas[0].error;
    EXPECT_GT(report.replicas[0].bytes, 0u);
  }
}

// Follows, answers, says that it has entered each group, and never does.
class AbsentMember {
 public:
  explicit AbsentMember(const std::string& hub) {
    member_ = must(Member::join({.hub = hub,
                                 .secret = Secret("between us"),
                                 .name = "absent",
                                 .hello = Message::of({{"ship", kShipProtocol}}).serialise()}));
    tell({{"follow", uint64_t{512} << 20}});
    thread_ = std::thread([this] { run(); });
  }
  ~AbsentMember() {
    stop_ = true;
    thread_.join();
  }
  void ask_for(const std::string& name) { tell({{"ask", 1}, {"op", "get"}, {"name", name}}); }
  void put(const std::string& name, const std::string& text) {
    tell({{"ask", 2}, {"op", "put"}, {"name", name}}, text);
  }
  void say_nonsense() { EXPECT_TRUE(member_->tell("nonsense", kPatience).ok()); }
  std::atomic<int> groups = 0, commits = 0;  // that it was asked into, and was told of

 private:
  void tell(nlohmann::json words, std::string body = {}) {
    const Message message(std::move(words), std::move(body));
    EXPECT_TRUE(member_->tell(message.serialise(), kPatience).ok());
  }
  void run() {
    while (!stop_) {
      const auto heard = member_->hear(0.1);
      if (!heard.ok()) continue;
      const Message word = Message::parse(*heard).value();
      if (const auto round = word.number("ready")) tell({{"ready", *round}});
      if (const auto round = word.number("epoch")) {
        ++groups;
        tell({{"entered", *round}});
      }
      if (word.has("commit")) ++commits;
    }
  }
  std::unique_ptr<Member> member_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST(ShipAbsent, WhoSaysThatItEnteredAndDidNotIsAskedTwiceAndNotAgain) {
  Trainer trainer(Trainer::quick(3));
  FollowingReplica replica(joining(trainer.shipper->address()), trainer.model);
  AbsentMember absent(trainer.shipper->address());
  ASSERT_TRUE(trainer.shipper->wait_for(2, kPatience).ok());
  for (uint64_t version = 0; version < 5; ++version) {
    const ShipReport report = trainer.step();
    ASSERT_TRUE(replica.wait_for_version(version)) << replica.error();
    EXPECT_TRUE(replica.memory.is(trainer.model));
    EXPECT_GT(report.bytes, 0U);  // to the one that does enter
  }
  while (absent.commits < 5) std::this_thread::yield();
  EXPECT_EQ(absent.groups, 2);
}

// Gives one object when it is let go.
class StuckStore final : public ForwardingStore {
 public:
  StuckStore() : ForwardingStore(std::make_shared<MemoryStore>("stuck")) {}
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    if (name == "stuck") {
      asked.count_down();
      let_go.wait();
    }
    return ForwardingStore::get(name, max_bytes);
  }
  std::latch asked{1}, let_go{1};
};

TEST(ShipAbsent, WhoseQuestionTakesLongIsInTheGroupAllTheSame) {
  const auto store = std::make_shared<StuckStore>();
  Trainer trainer(Trainer::quick(3), {}, store);
  AbsentMember member(trainer.shipper->address());
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  member.ask_for("stuck");
  store->asked.wait();
  trainer.step();
  EXPECT_GT(member.groups, 0);
  store->let_go.count_down();
}

// Its heartbeat is still on its way to the store when it has left.
TEST(ShipAbsent, AHeartbeatOfOneThatHasLeftDoesNoHarm) {
  const auto store = std::make_shared<StuckStore>();
  Trainer trainer(Trainer::quick(), {}, store);
  {
    AbsentMember member(trainer.shipper->address());
    ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
    member.ask_for("stuck");
    store->asked.wait();
    const Heartbeat beat{.name = "absent"};
    member.put(heartbeat_object(beat.name), serialise_heartbeat(beat));
    member.say_nonsense();
  }
  store->let_go.count_down();
  while (trainer.shipper->wait_for(1, 0).ok()) std::this_thread::yield();
  const ShipReport report = trainer.step();
  ASSERT_EQ(report.replicas.size(), 1U);
  EXPECT_EQ(report.replicas[0].name, "absent");
  EXPECT_FALSE(report.replicas[0].error.empty());
}

// It holds a later number, of a run that was published at this address before.
TEST(ShipAbsent, AReplicaOfAnotherRunDoesNotHoldTheVersion) {
  Trainer trainer(Trainer::quick(1));
  AbsentMember member(trainer.shipper->address());
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  Heartbeat beat{.name = "stranger"};
  beat.held = Identity{std::string(32, 'f'), 9, std::string(64, 'f')};
  member.put(heartbeat_object(beat.name), serialise_heartbeat(beat));
  const ShipReport report = trainer.step();
  ASSERT_EQ(report.replicas.size(), 1U);
  EXPECT_EQ(report.replicas[0].error, "is at " + to_string(*beat.held));
  EXPECT_EQ(report.warnings, std::vector<std::string>{"stranger: " + report.replicas[0].error});
}

TEST(ShipAbsent, WhoLeavesBetweenTwoVersionsIsNamedInTheNextAndNotAgain) {
  Trainer trainer;
  FollowingReplica replica(joining(trainer.shipper->address()), trainer.model);
  {
    FollowingReplica leaver(joining(trainer.shipper->address(), "leaver"), trainer.model);
    ASSERT_TRUE(trainer.shipper->wait_for(2, kPatience).ok());
    EXPECT_TRUE(trainer.step().warnings.empty());
  }
  while (trainer.shipper->wait_for(2, 0).ok()) std::this_thread::yield();
  const ShipReport next = trainer.step();
  ASSERT_EQ(next.warnings.size(), 1U);
  EXPECT_NE(next.warnings[0].find("leaver: "), std::string::npos) << next.warnings[0];
  const ShipReport after = trainer.step();
  EXPECT_TRUE(after.warnings.empty()) << after.warnings[0];
  EXPECT_EQ(after.replicas.size(), 1U);
}

TEST(ShipAbsent, WhoLeavesWithoutAWordIsNamedOnce) {
  Trainer trainer;
  EXPECT_TRUE(trainer.step().warnings.empty());
  {
    AbsentMember member(trainer.shipper->address());  // says nothing of what it holds
    ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  }
  while (trainer.shipper->wait_for(1, 0).ok()) std::this_thread::yield();
  EXPECT_EQ(trainer.step().warnings.size(), 1U);
  EXPECT_EQ(trainer.shipper->report().warnings.size(), 1U);  // the same version
  EXPECT_TRUE(trainer.step().warnings.empty());
}

TEST(ShipAbsent, WhoTakesLittleAtOnceIsToldAndReads) {
  Trainer trainer;
  JoinOptions small = joining(trainer.shipper->address());
  small.buffer_bytes = 4096;
  small.name = "small";
  FollowingReplica reads(small, trainer.model);
  FollowingReplica sent(joining(trainer.shipper->address(), "large"), trainer.model);
  ASSERT_TRUE(trainer.shipper->wait_for(2, kPatience).ok());
  for (uint64_t version = 0; version < 3; ++version) {
    const ShipReport report = trainer.step();
    EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
    for (const Shipped& one : report.replicas) {
      EXPECT_EQ(one.rank.has_value(), one.name == "large") << one.name;
      EXPECT_EQ(one.version, version) << one.name;
    }
  }
  EXPECT_TRUE(reads.memory.is(trainer.model));
}

}  // namespace
}  // namespace deltawire::testing
