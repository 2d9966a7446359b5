// Receivers that missed versions: what has changed since the one that they hold, as far as it is
// kept.
#include "cluster.h"

namespace deltawire::testing {
namespace {

Cluster two_to_three(ShardOptions options = {}) {
  return Cluster(layout_for("fsdp=2", expert_tensors()), layout_for("fsdp=3", expert_tensors()),
                 options);
}

ShardOptions keeping(uint64_t history_bytes) { return {.history_bytes = history_bytes}; }

constexpr uint64_t kPlenty = uint64_t{1} << 30;

TEST(ShardMissedTest, OneThatMissedVersionsGetsWhatHasChangedSince) {
  for (unsigned missed = 1; missed <= 5; ++missed) {
    SCOPED_TRACE(missed);
    Cluster cluster = two_to_three(keeping(kPlenty));
    cluster.expect_sent(1);
    unsigned version = 1;
    for (unsigned i = 0; i < missed; ++i) {
      cluster.train(++version);
      cluster.send(version, {}, {1});
    }
    cluster.train(++version);
    const Cluster::Outcome outcome = cluster.send(version);
    unsigned merged = 0;
    for (const ShardReport& report : outcome.received) EXPECT_EQ(report.num_whole, 0u);
    for (const ShardReport& report : outcome.sent) {
      EXPECT_TRUE(report.notes.empty());
      merged += report.num_merged;
    }
    EXPECT_EQ(merged, outcome.received[1].num_delta);
    EXPECT_LT(outcome.received[1].sent_bytes, outcome.received[1].contents_bytes);
    cluster.expect_same();
    cluster.train(++version);
    cluster.expect_sent(version);
    for (const Status& status : cluster.prove()) EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

TEST(ShardMissedTest, EachIsBehindByACountOfItsOwn) {
  Cluster cluster = two_to_three(keeping(kPlenty));
  cluster.expect_sent(1);
  const std::vector<std::vector<unsigned>> dropping = {{0, 1, 2}, {0, 1}, {0}, {0, 2}, {}};
  unsigned version = 1;
  for (const std::vector<unsigned>& engines : dropping) {
    cluster.train(++version);
    const Cluster::Outcome outcome = cluster.send(version, {}, engines);
    for (const Status& status : outcome.engines) EXPECT_TRUE(status.ok()) << status.to_string();
    for (const ShardReport& report : outcome.received) EXPECT_EQ(report.num_whole, 0u);
  }
  cluster.expect_same();
}

// A weight that goes back to what a receiver still holds is new to all others, and to the snapshot.
TEST(ShardMissedTest, WeightsMayGoBackToWhatTheyWere) {
  Cluster cluster = two_to_three(keeping(kPlenty));
  cluster.expect_sent(1);
  const State before = cluster.state();
  cluster.train(2);
  cluster.send(2, {}, {0, 1, 2});
  cluster.state() = before;
  for (Rank& rank : cluster.trainers()) rank.set(before);
  const Cluster::Outcome outcome = cluster.send(3);
  for (const ShardReport& report : outcome.received) EXPECT_EQ(report.num_changed, 0u);
  cluster.expect_same();
  cluster.train(4);
  cluster.expect_sent(4);
}

// Parts of one that is away are read too, so that it can be given what it missed.
TEST(ShardMissedTest, OneThatWasAwayComesBack) {
  Cluster cluster = two_to_three(keeping(kPlenty));
  cluster.expect_sent(1);
  for (unsigned version = 2; version < 5; ++version) {
    cluster.regroup();
    cluster.train(version);
    const Cluster::Outcome outcome = cluster.send(version, {4});
    for (const Status& status : outcome.trainers) EXPECT_TRUE(status.ok()) << status.to_string();
  }
  cluster.regroup();
  cluster.train(5);
  const Cluster::Outcome outcome = cluster.send(5);
  for (const ShardReport& report : outcome.received) EXPECT_EQ(report.num_whole, 0u);
  cluster.expect_same();
}

TEST(ShardMissedTest, WhatIsTooOldComesWholeAndSaysWhy) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{20}}) {
    Cluster cluster = two_to_three(keeping(bytes));
    cluster.expect_sent(1);
    cluster.train(2);
    cluster.send(2, {}, {1});
    cluster.train(4);
    const Cluster::Outcome outcome = cluster.send(3);
    EXPECT_EQ(outcome.received[0].num_whole, 0u);
    EXPECT_EQ(outcome.received[1].num_delta, 0u);
    ASSERT_FALSE(outcome.sent[0].notes.empty());
    EXPECT_EQ(outcome.sent[0].notes[0],
              "engine rank 1: whole, because it holds version 1, not 2 or one of the 0 before it "
              "whose changes are kept");
    cluster.expect_same();
  }
}

TEST(ShardMissedTest, NoMoreThanSoManyVersionsAreKept) {
  Cluster cluster = two_to_three(keeping(kPlenty));
  cluster.expect_sent(1);
  unsigned version = 1;
  for (unsigned i = 0; i < 16; ++i) {
    cluster.train(++version);
    cluster.send(version, {}, {0, 1});
  }
  cluster.train(++version);
  Cluster::Outcome outcome = cluster.send(version, {}, {1});  // 16 back
  EXPECT_EQ(outcome.received[0].num_whole, 0u);
  cluster.train(++version);
  outcome = cluster.send(version);  // 17 back
  EXPECT_EQ(outcome.received[0].num_whole, 0u);
  EXPECT_EQ(outcome.received[1].num_delta, 0u);
  cluster.expect_same();
}

// All of a box may change: the list that leads back is the box.
TEST(ShardMissedTest, DenseChangesAreKeptAsTheyAre) {
  Cluster cluster = two_to_three(keeping(kPlenty));
  cluster.expect_sent(1);
  for (unsigned version = 2; version < 4; ++version) {
    for (auto& [name, bytes] : cluster.state()) {
      for (uint8_t& byte : bytes) byte = uint8_t(byte * 5 + version);
    }
    cluster.train(version);
    const Cluster::Outcome outcome = cluster.send(version, {}, {version});
    for (const ShardReport& report : outcome.received) EXPECT_EQ(report.num_whole, 0u);
  }
  cluster.train(5);
  const Cluster::Outcome outcome = cluster.send(5);
  for (const ShardReport& report : outcome.received) EXPECT_EQ(report.num_whole, 0u);
  cluster.expect_same();
}

TEST(ShardMissedTest, ATrainerThatBeginsAnewSendsAllAndSaysWhy) {
  Cluster cluster = two_to_three(keeping(kPlenty));
  cluster.expect_sent(1);
  cluster.train(2);
  cluster.send(2, {}, {1});
  cluster.restart_trainers();
  cluster.train(3);
  const Cluster::Outcome outcome = cluster.send(3);
  for (const ShardReport& report : outcome.received) EXPECT_EQ(report.num_delta, 0u);
  ASSERT_FALSE(outcome.sent[0].notes.empty());
  EXPECT_EQ(outcome.sent[0].notes[0],
            "engine rank 0: whole, because it holds version 2, and this sender has no snapshot");
  cluster.expect_same();
  cluster.train(4);
  cluster.expect_sent(4);
}

// Many slices, each with a list of its own; random receivers drop random versions.
TEST(ShardMissedTest, RandomOnesMissRandomVersions) {
  std::mt19937 random(11);
  for (unsigned round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    ShardOptions options = keeping(round % 2 == 0 ? kPlenty : 3000);
    options.bucket_bytes = 20000;
    options.slice_bytes = 4096;
    const std::vector<ShardTensor> tensors = {
        {"a", DType::kBF16, {150, 64}}, {"b", DType::kF32, {50, 7, 9}}, {"c", DType::kI64, {5}}};
    Cluster cluster(layout_for("fsdp=2", tensors), layout_for("fsdp=3", tensors), options);
    cluster.expect_sent(1);
    for (unsigned version = 2; version < 12; ++version) {
      cluster.train(version * 7 + round);
      std::vector<unsigned> dropping;
      for (unsigned engine = 0; engine < 3; ++engine) {
        if (random() % 2 == 0) dropping.push_back(engine);
      }
      const Cluster::Outcome outcome = cluster.send(version, {}, dropping);
      for (unsigned engine = 0; engine < 3; ++engine) {
        EXPECT_TRUE(outcome.engines[engine].ok()) << outcome.engines[engine].to_string();
        const bool has = std::find(dropping.begin(), dropping.end(), engine) == dropping.end();
        if (has) cluster.engines()[engine].expect(cluster.state());
      }
    }
  }
}

}  // namespace
}  // namespace deltawire::testing
