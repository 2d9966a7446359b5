// Heartbeats of replicas that share a name: each keeps its own lease.
#include "replica/beat.h"

#include "base/log.h"
#include "chain/names.h"
#include "chain/retention.h"
#include "store/memory_store.h"
#include "support/published_model.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

class HeartbeatWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    store->set_clock(now);
    set_log_sink(LogLevel::kWarning,
                 [this](const LogRecord& record) { events.push_back(std::string(record.event)); });
  }
  void TearDown() override { set_log_sink(LogLevel::kOff, {}); }

  static Heartbeat fetching(uint64_t to) { return {.lease = Lease{{}, to, 0}}; }
  // The versions named by live leases.
  std::vector<uint64_t> leases(int64_t now) {
    std::vector<uint64_t> to;
    store->set_clock(now);
    const Claims claims = list_claims(*store, now).value();
    for (const Lease& lease : claims.leases) to.push_back(lease.to);
    std::sort(to.begin(), to.end());
    return to;
  }
  size_t num_objects() { return objects_of(*store, "replicas/").size(); }

  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  std::vector<std::string> events;
  int64_t now = 1'800'000'000;
};

TEST_F(HeartbeatWriterTest, DoesNotRecreateAMissingFolder) {
  for (const uint64_t rate : {0, 1'000'000'000}) {
    const TempFolder folder;
    const fs::path path = folder.path() / "store";
    const std::shared_ptr<Store> disk =
        open_store(path.string(), {.max_bytes_per_second = rate}).value();
    ASSERT_TRUE(disk->put(kRunName, MemoryBody("{}")).ok());
    HeartbeatWriter writer(disk, "rollout", "id-a");
    EXPECT_TRUE(writer.write(fetching(1), now).ok());
    fs::rename(path, folder.path() / "away");
    EXPECT_EQ(writer.write(fetching(2), now).code(), Code::kNotFound);
    EXPECT_FALSE(fs::exists(path));
    fs::create_directory(path);  // where it was mounted
    EXPECT_EQ(writer.write(fetching(2), now).code(), Code::kNotFound);
    EXPECT_TRUE(fs::is_empty(path));
    fs::rename(folder.path() / "away", path);
    EXPECT_TRUE(writer.write(fetching(2), now).ok());
  }
}

TEST_F(HeartbeatWriterTest, TwoReplicasOfOneNameKeepBothLeases) {
  HeartbeatWriter a(store, "rollout", "id-a"), b(store, "rollout", "id-b");
  ASSERT_TRUE(a.write(fetching(5), now).ok());
  ASSERT_TRUE(b.write(fetching(7), now + 1).ok());
  EXPECT_EQ(leases(now + 1), (std::vector<uint64_t>{5, 7}));
  EXPECT_EQ(events, (std::vector<std::string>{"replica.name_taken"}));
  for (int minute = 1; minute < 10; ++minute) {
    ASSERT_TRUE(a.write(fetching(5), now += 60).ok());
    ASSERT_TRUE(b.write(fetching(7), now + 1).ok());
    EXPECT_EQ(leases(now + 1), (std::vector<uint64_t>{5, 7})) << minute;
    EXPECT_EQ(num_objects(), 2U);
  }
  EXPECT_EQ(events.size(), 1U);  // said once
}

// Both read the name before either wrote.
TEST_F(HeartbeatWriterTest, ReplicasThatStartTogetherDetectEachOther) {
  HeartbeatWriter a(store, "rollout", "same"), b(store, "rollout", "same");  // a copied folder
  ASSERT_TRUE(a.write(fetching(5), now).ok());
  ASSERT_TRUE(b.write(fetching(7), now).ok());  // takes it for an earlier process of its own
  for (int minute = 1; minute < 4; ++minute) {
    ASSERT_TRUE(a.write(fetching(5), now += 60).ok());
    ASSERT_TRUE(b.write(fetching(7), now).ok());
    EXPECT_EQ(leases(now), (std::vector<uint64_t>{5, 7})) << minute;
  }
  EXPECT_EQ(events.size(), 1U);
}

TEST_F(HeartbeatWriterTest, RestartedReplicaReclaimsItsName) {
  for (int process = 0; process < 3; ++process) {
    HeartbeatWriter writer(store, "rollout", "id-a");
    ASSERT_TRUE(writer.write(fetching(5), ++now).ok());
    EXPECT_EQ(num_objects(), 1U);
  }
  EXPECT_TRUE(events.empty());
}

TEST_F(HeartbeatWriterTest, TakesOverTheNameOfASilentReplica) {
  {
    HeartbeatWriter dead(store, "rollout", "id-a");
    ASSERT_TRUE(dead.write(fetching(5), now).ok());
  }
  HeartbeatWriter heir(store, "rollout", "id-b");
  for (int minute = 0; minute <= 3; ++minute) {
    ASSERT_TRUE(heir.write(fetching(6), now + 1 + minute * 60).ok());
    EXPECT_EQ(num_objects(), 2U) << minute;
  }
  ASSERT_TRUE(heir.write(fetching(6), now + 1 + kSilentSeconds + 60).ok());
  EXPECT_EQ(num_objects(), 1U);  // the one beside is gone
  EXPECT_EQ(read_heartbeat(*store, "rollout")->id, "id-b");
  // A third one, much later, takes the name at once.
  HeartbeatWriter late(store, "rollout", "id-c");
  ASSERT_TRUE(late.write(fetching(7), now + 10'000).ok());
  EXPECT_EQ(read_heartbeat(*store, "rollout")->id, "id-c");
  EXPECT_EQ(events.size(), 1U);
}

// A replica that was believed dead comes back.
TEST_F(HeartbeatWriterTest, ReplicaThatLosesItsNameIsRenamed) {
  HeartbeatWriter slow(store, "rollout", "id-a"), heir(store, "rollout", "id-b");
  ASSERT_TRUE(slow.write(fetching(5), now).ok());
  ASSERT_TRUE(heir.write(fetching(6), now + kSilentSeconds + 1).ok());
  ASSERT_TRUE(slow.write(fetching(5), now + kSilentSeconds + 2).ok());
  EXPECT_EQ(leases(now + kSilentSeconds + 2), (std::vector<uint64_t>{5, 6}));
  // The other clock may be wrong by hours: what counts is that it wrote after us.
  ASSERT_TRUE(heir.write(fetching(6), now + 100'000).ok());
  EXPECT_EQ(read_heartbeat(*store, "rollout")->id, "id-b");
}

TEST_F(HeartbeatWriterTest, UnreadableRecordIsReplaced) {
  ASSERT_TRUE(store->put(heartbeat_object("rollout"), MemoryBody("{}")).ok());
  HeartbeatWriter writer(store, "rollout", "id-a");
  ASSERT_TRUE(writer.write(fetching(5), now).ok());
  EXPECT_EQ(read_heartbeat(*store, "rollout")->lease->to, 5U);
}

TEST(ReplicaBeat, FailureIsReportedUntilAPullSucceeds) {
  const Identity held{std::string(32, 'a'), 1, std::string(64, '1')};
  const auto store = std::make_shared<MemoryStore>();
  {
    ReplicaBeat beat(store, "rollout", "id");
    beat.holds(held, {});
    beat.failed(Status(Code::kIo, "the disk is full"));
  }
  EXPECT_EQ(read_heartbeat(*store, "rollout")->error, "i/o error: the disk is full");
  {
    ReplicaBeat beat(store, "rollout", "id");
    beat.holds(held, {});
    beat.failed(Status(Code::kIo, "the disk is full"));
    beat.holds(held, {});
  }
  EXPECT_EQ(read_heartbeat(*store, "rollout")->error, "");
}

TEST(ReplicaId, IsStableAndUniquePerFolder) {
  TempFolder one, two;
  const std::string id = replica_id(one.path()).value();
  EXPECT_EQ(id.size(), 16U);
  EXPECT_EQ(replica_id(one.path()).value(), id);
  EXPECT_NE(replica_id(two.path()).value(), id);
  std::ofstream(one.path() / "id") << "x";  // damaged: a new one
  const std::string again = replica_id(one.path()).value();
  EXPECT_NE(again, id);
  EXPECT_EQ(replica_id(one.path()).value(), again);
  // Containers may share host name and path.
  EXPECT_NE(default_name("/ckpt", id), default_name("/ckpt", again));
  EXPECT_EQ(default_name("/ckpt", id), default_name("/ckpt", id));
}

}  // namespace
}  // namespace deltawire::testing
