#include "chain/heartbeat.h"

#include "store/memory_store.h"
#include "support/test_chain.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

Heartbeat sample(const std::string& name) {
  return {.name = name,
          .host = "node-1",
          .pid = 77,
          .held = Identity{std::string(32, 'a'), 12, std::string(64, '1')},
          .serving = Identity{std::string(32, 'a'), 11, std::string(64, '2')},
          .pause_microseconds = 14'350,
          .seen = 1'800'000'000,
          .interval_seconds = 60,
          .lease = Lease{12, 15, 1'800'000'900}};
}

TEST(Heartbeat, RoundTrips) {
  MemoryStore store;
  Heartbeat heartbeat = sample("rollout-3");
  ASSERT_TRUE(write_heartbeat(store, heartbeat).ok());
  EXPECT_EQ(read_heartbeat(store, "rollout-3").value(), heartbeat);
  heartbeat.held.reset();
  heartbeat.serving.reset();
  heartbeat.pause_microseconds.reset();
  heartbeat.lease = Lease{{}, 3, 1};
  ASSERT_TRUE(write_heartbeat(store, heartbeat).ok());
  EXPECT_EQ(read_heartbeat(store, "rollout-3").value(), heartbeat);
  heartbeat.lease.reset();
  ASSERT_TRUE(write_heartbeat(store, heartbeat).ok());
  EXPECT_EQ(read_heartbeat(store, "rollout-3").value(), heartbeat);
}

TEST(Heartbeat, RejectsInvalidIdentities) {
  for (const Identity& bad : {Identity{"run", 1, std::string(64, '1')},
                              Identity{std::string(32, 'a'), 1, "not a digest"}}) {
    Heartbeat heartbeat = sample("rollout-3");
    heartbeat.held = bad;
    EXPECT_EQ(parse_heartbeat(serialise_heartbeat(heartbeat)).status().code(), Code::kCorruption);
  }
}

TEST(Heartbeat, ClampsTimesBefore1970) {
  MemoryStore store;
  Heartbeat heartbeat = sample("early");
  heartbeat.seen = -5;
  heartbeat.lease = Lease{{}, 3, -1};
  ASSERT_TRUE(write_heartbeat(store, heartbeat).ok());
  const auto read = must(read_heartbeat(store, "early"));
  EXPECT_EQ(read.seen, 0);
  EXPECT_EQ(read.lease->expires, 0);
}

TEST(Heartbeat, EveryNameHasItsOwnObject) {
  EXPECT_EQ(heartbeat_object("rollout-3"), "replicas/rollout-3.json");
  std::set<std::string> objects;
  const std::string names[] = {"",
                               ".",
                               "..",
                               "../x",
                               "a/b",
                               "a-b",
                               "a b",
                               "\xff",
                               "x\n",
                               std::string(300, 'x'),
                               std::string(301, 'x')};
  for (const std::string& name : names) {
    const std::string object = heartbeat_object(name);
    EXPECT_TRUE(check_object_name(object).ok()) << object;
    EXPECT_EQ(object.find('/', 9), std::string::npos) << object;
    EXPECT_TRUE(objects.insert(object).second) << object;
  }
}

TEST(Heartbeat, ListReportsUnreadableOnes) {
  MemoryStore store;
  ASSERT_TRUE(write_heartbeat(store, sample("a")).ok());
  std::string bad = serialise_heartbeat(sample("b"));
  bad[bad.size() / 2] = char(bad[bad.size() / 2] ^ 1);
  ASSERT_TRUE(store.put(heartbeat_object("b"), MemoryBody(bad)).ok());
  const auto found = must(list_heartbeats(store));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].heartbeat.value(), sample("a"));
  EXPECT_FAILS(found[1].heartbeat, kCorruption, "replicas/b.json");
}

TEST(Heartbeat, DetectsEveryFlippedBit) {
  const std::string good = serialise_heartbeat(sample("a"));
  for (size_t at = 0; at < good.size() * 8; ++at) {
    std::string bad = good;
    bad[at / 8] = char(bad[at / 8] ^ (1 << at % 8));
    EXPECT_FALSE(parse_heartbeat(bad).ok()) << "bit " << at;
  }
}

// ---- gone replicas

class GoneReplicas : public ::testing::Test {
 protected:
  // The replica's own clock is wrong by a year: only the store's clock counts.
  void write(const std::string& name, uint64_t interval, const std::string& session = "s") {
    Heartbeat beat = sample(name);
    beat.interval_seconds = interval;
    beat.session = session;
    beat.seen += 365 * 24 * 3600;
    const std::string object = heartbeat_object(session == "s" ? name : name + "#" + session);
    ASSERT_TRUE(write_heartbeat(*real.memory, object, beat).ok());
  }
  std::vector<std::string> gone_after(int64_t seconds) {
    real.memory->set_clock(kNow + seconds);
    std::vector<std::string> names;
    const Chain chain = Chain::open(real.memory).value();
    for (const ListedHeartbeat& listed : chain.replicas().value()) {
      EXPECT_EQ(listed.age_seconds, seconds);
      if (listed.is_gone()) names.push_back(listed.object.name);
    }
    return names;
  }

  static constexpr int64_t kNow = 1'700'000'000;
  testing::TestChain real;
  GoneReplicas() { real.memory->set_clock(kNow); }
};

TEST_F(GoneReplicas, AreSilentForThreeIntervals) {
  write("often", 10);
  write("seldom", 600);
  write("never-said", 0);
  write("absurd", UINT64_MAX);
  ASSERT_TRUE(real.memory->put("replicas/torn.json", MemoryBody("{}")).ok());
  const auto names = [](std::initializer_list<const char*> list) {
    std::vector<std::string> all;
    for (const char* name : list) all.push_back("replicas/" + std::string(name) + ".json");
    return all;
  };
  EXPECT_EQ(gone_after(30), names({}));
  EXPECT_EQ(gone_after(31), names({"often"}));
  EXPECT_EQ(gone_after(180), names({"often"}));
  EXPECT_EQ(gone_after(181), names({"never-said", "often", "torn"}));
  EXPECT_EQ(gone_after(1801), names({"never-said", "often", "seldom", "torn"}));
  EXPECT_EQ(gone_after(3 * kMaxLeaseSeconds + 1),
            names({"absurd", "never-said", "often", "seldom", "torn"}));
}

TEST_F(GoneReplicas, ForgetNeedsForceForLiveOnes) {
  const Chain chain = Chain::open(real.memory).value();
  write("one", 60);
  write("other", 60);
  EXPECT_FAILS(chain.forget("nobody"), kNotFound, "nobody");
  EXPECT_FAILS(chain.forget("one"), kConflict, "one", "last heartbeat was 0 s ago");
  real.memory->set_clock(kNow + 181);
  write("one", 60, "beside");  // another process of this name, alive
  EXPECT_EQ(chain.forget("one").value(), 1U);
  EXPECT_EQ(chain.replicas()->size(), 2U);
  EXPECT_FAILS(chain.forget("one"), kConflict);
  EXPECT_EQ(chain.forget("one", true).value(), 1U);
  ASSERT_TRUE(real.memory->put("replicas/torn.json", MemoryBody("{}")).ok());
  EXPECT_FAILS(chain.forget("replicas/torn.json"), kConflict);
  real.memory->set_clock(kNow + 400);
  EXPECT_EQ(chain.forget("replicas/torn.json").value(), 1U);
  ASSERT_EQ(chain.replicas()->size(), 1U);
  EXPECT_EQ(chain.replicas()->front().heartbeat->name, "other");
}

TEST_F(GoneReplicas, GcForgetsThemAfterAMonthByTheStoreClock) {
  write("ahead", 60);  // says that it was seen in a year
  EXPECT_EQ(forget_replicas(*real.memory, kNow - 1, false).value(), 0U);
  EXPECT_EQ(forget_replicas(*real.memory, kNow, false).value(), 1U);
}

}  // namespace
}  // namespace deltawire::testing
