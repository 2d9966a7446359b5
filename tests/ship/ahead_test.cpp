// What is decoded before a version is committed: nothing of it is seen, and nothing wrong is used.
#include "chain/names.h"
#include "deltawire/checkpoint.h"
#include "deltawire/replica.h"
#include "fleet.h"
#include "store/push_source.h"

namespace deltawire::testing {
namespace {

// Holds up, or refuses, manifests: all of a version is sent, and it is not committed.
class GatedStore final : public ForwardingStore {
 public:
  GatedStore() : ForwardingStore(std::make_shared<MemoryStore>("gated")) {}

  Status put_if_absent(std::string_view name, const Body& body) override {
    if (version_of_manifest(name)) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return open_; });
      if (refuse_) return unavailable("the commit is refused");
    }
    return ForwardingStore::put_if_absent(name, body);
  }
  void set(bool open, bool refuse = false) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    refuse_ = refuse;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true, refuse_ = false;
};

class ShipAhead : public ::testing::Test {
 protected:
  ShipAhead() : gate(std::make_shared<GatedStore>()), trainer(Trainer::quick(), {}, gate) {
    EXPECT_TRUE(publish());
    store = join_ship(joining(trainer.shipper->address())).value();
  }

  bool publish() { return trainer.publisher->publish(trainer.model.views()).ok(); }

  // Publishes a step up to its commit, and decodes what is sent. `publishing` goes on behind.
  template <class AnyReplica>
  void send_ahead(AnyReplica* replica) {
    ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
    gate->set(false);
    trainer.model.step();
    publishing = std::thread([this] { published = publish(); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kPatience);
    while (ahead == 0 && std::chrono::steady_clock::now() < end) {
      ahead = replica->prepare_ahead();
      (void)push_source_of(*store)->wait_for_news(UINT64_MAX, 0.05);
    }
    ASSERT_GT(ahead, 0U);
  }
  void let_commit(bool refuse = false) {
    gate->set(true, refuse);
    publishing.join();
    gate->set(true);
    EXPECT_EQ(published, !refuse);
  }
  template <class AnyReplica>
  PullReport pull_until(AnyReplica* replica, uint64_t version) {
    while (true) {
      const auto report = replica->pull();
      EXPECT_TRUE(report.ok()) << report.status().to_string();
      if (!report.ok() || report->version >= version) return report.value();
      (void)push_source_of(*store)->wait_for_news(UINT64_MAX, 0.05);
    }
  }
  TensorReplica open(Memory* memory) {
    TensorReplica replica =
        must(TensorReplica::open(store, memory->tensors, {.limits = {.threads = 2}}));
    EXPECT_TRUE(replica.pull().ok());
    return replica;
  }

  std::shared_ptr<GatedStore> gate;
  Trainer trainer;
  std::shared_ptr<Store> store;
  std::thread publishing;
  bool published = false;
  uint64_t ahead = 0;
};

TEST_F(ShipAhead, TensorsAreDecodedBeforeTheCommitAndWrittenAfterIt) {
  Memory memory(trainer.model);
  TensorReplica replica = open(&memory);
  const Model before = trainer.model;
  send_ahead(&replica);
  EXPECT_TRUE(memory.is(before));
  const auto early = replica.pull();  // there is nothing to be seen
  ASSERT_TRUE(early.ok()) << early.status().to_string();
  EXPECT_FALSE(early->changed);
  EXPECT_TRUE(memory.is(before));
  let_commit();
  const PullReport report = pull_until(&replica, 1);
  EXPECT_EQ(report.num_ahead, ahead);
  EXPECT_EQ(report.from, 0U);
  EXPECT_FALSE(report.repaired);
  EXPECT_TRUE(memory.is(trainer.model));
  EXPECT_EQ(replica.prepare_ahead(), 0U);
}

TEST_F(ShipAhead, AFolderIsPatchedWithWhatWasDecodedBefore) {
  const TempFolder folder;
  Replica replica = must(Replica::open(store, folder.path() / "ckpt", {.limits = {.threads = 2}}));
  ASSERT_TRUE(replica.pull().ok());
  send_ahead(&replica);
  let_commit();
  const PullReport report = pull_until(&replica, 1);
  EXPECT_EQ(report.num_ahead, ahead);
  EXPECT_FALSE(report.repaired);
  const Checkpoint held = Checkpoint::open(folder.path() / "ckpt").value();
  for (const TestTensor& tensor : trainer.model.tensors) {
    const Bytes bytes = held.find(tensor.name)->view.bytes;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tensor.bytes.begin(), tensor.bytes.end()))
        << tensor.name;
  }
}

TEST_F(ShipAhead, WhatIsNeverCommittedIsDropped) {
  Memory memory(trainer.model);
  TensorReplica replica = open(&memory);
  const Model before = trainer.model;
  send_ahead(&replica);
  let_commit(true);
  const auto nothing = must(replica.pull());
  EXPECT_FALSE(nothing.changed);
  EXPECT_TRUE(memory.is(before));
  trainer.model.step();  // the same number, other weights
  ASSERT_TRUE(publish());
  const PullReport report = pull_until(&replica, 1);
  EXPECT_FALSE(report.repaired) << report.repair_reason;
  EXPECT_TRUE(memory.is(trainer.model));
}

TEST_F(ShipAhead, WhoWritesToTensorsMeanwhileIsFound) {
  Memory memory(trainer.model);
  TensorReplica replica = open(&memory);
  send_ahead(&replica);
  for (LiveTensor& tensor : memory.tensors) tensor.bytes[tensor.bytes.size() / 2] ^= 1;
  let_commit();
  const PullReport report = pull_until(&replica, 1);
  EXPECT_TRUE(report.repaired);
  EXPECT_TRUE(memory.is(trainer.model));
}

TEST_F(ShipAhead, AReplicaThatIsBehindDecodesNothing) {
  Memory memory(trainer.model);
  TensorReplica replica = open(&memory);
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  trainer.model.step();
  ASSERT_TRUE(publish());  // and not pulled
  gate->set(false);
  trainer.model.step();
  publishing = std::thread([this] { published = publish(); });
  const auto second_is_sent = [&] {
    const std::vector<SentObject> sent = push_source_of(*store)->sent_ahead(0);
    return std::any_of(sent.begin(), sent.end(), [](const SentObject& object) {
      return attempt_folder(object.name)->version == 2;
    });
  };
  while (!second_is_sent()) (void)push_source_of(*store)->wait_for_news(UINT64_MAX, 0.05);
  EXPECT_EQ(replica.prepare_ahead(), 0U);
  let_commit();
  EXPECT_EQ(pull_until(&replica, 2).num_ahead, 0U);
  EXPECT_TRUE(memory.is(trainer.model));
}

TEST_F(ShipAhead, WhoFollowsDoesItWhileItWaits) {
  FollowingReplica replica(joining(trainer.shipper->address()), trainer.model);
  ASSERT_TRUE(replica.wait_for_version(0)) << replica.error();
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  gate->set(false);
  trainer.model.step();
  publishing = std::thread([this] { published = publish(); });
  while (replica.ahead == 0) std::this_thread::yield();
  let_commit();
  ASSERT_TRUE(replica.wait_for_version(1)) << replica.error();
  EXPECT_GT(replica.pulls().back().num_ahead, 0U);
  EXPECT_TRUE(replica.memory.is(trainer.model));
}

// The report is of the version alone, and whoever has come since gets it.
TEST(ShipAgain, ANumberThatWasNotCommittedIsShippedAnew) {
  const auto gate = std::make_shared<GatedStore>();
  Trainer trainer(Trainer::quick(), {}, gate);
  FollowingReplica first(joining(trainer.shipper->address()), trainer.model);
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  EXPECT_TRUE(trainer.step().warnings.empty());
  gate->set(true, true);
  trainer.model.step();
  EXPECT_FALSE(trainer.publisher->publish(trainer.model.views()).ok());
  gate->set(true);
  FollowingReplica second(joining(trainer.shipper->address()), trainer.model);
  ASSERT_TRUE(trainer.shipper->wait_for(2, kPatience).ok());
  const ShipReport report = trainer.step();
  EXPECT_EQ(report.version, 1U);
  EXPECT_EQ(report.bytes, Chain::open(gate)->version(1)->manifest.part_bytes());
  ASSERT_EQ(report.replicas.size(), 2U);
  for (const Shipped& one : report.replicas) {
    EXPECT_TRUE(one.rank.has_value()) << one.from;
    EXPECT_EQ(one.version, 1U) << one.error;
  }
  ASSERT_TRUE(second.wait_for_version(1)) << second.error();
  EXPECT_TRUE(second.memory.is(trainer.model));
}

// They are put first, in a folder of their own.
TEST(ShipAgain, FilesBesideTheWeightsAreOfTheSamePublish) {
  const TempFolder folder;
  const std::filesystem::path file = folder.path() / "config.json";
  std::ofstream(file) << std::string(12'345, 'x');
  Trainer trainer;
  FollowingReplica replica(joining(trainer.shipper->address()), trainer.model);
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  ASSERT_TRUE(trainer.publisher->publish(trainer.model.views(), {{file}}).ok());
  const ShipReport report = trainer.shipper->settle();
  EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
  const auto version = Chain::open(trainer.inner)->version(0);
  EXPECT_EQ(report.bytes, version->manifest.part_bytes() + 12'345);
  ASSERT_EQ(report.replicas.size(), 1U);
  EXPECT_GE(report.replicas[0].bytes, report.bytes);
}

}  // namespace
}  // namespace deltawire::testing
