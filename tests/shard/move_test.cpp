#include "cluster.h"
#include "deltawire/digest.h"

namespace deltawire::testing {
namespace {

struct Move {
  const char *from, *to;
};

class ShardMoves : public ::testing::TestWithParam<Move> {};

// Several versions from layout to layout: whole, then changes, all bit by bit.
TEST_P(ShardMoves, EveryBitArrives) {
  const std::vector<ShardTensor> tensors = expert_tensors();
  Cluster cluster(layout_for(GetParam().from, tensors), layout_for(GetParam().to, tensors));
  cluster.expect_sent(1);
  for (unsigned version = 2; version < 5; ++version) {
    cluster.train(version);
    const Cluster::Outcome outcome = cluster.send(version);
    for (const ShardReport& report : outcome.received) EXPECT_EQ(report.num_whole, 0u);
    cluster.expect_same();
  }
  uint64_t compared = 0;
  for (const Status& status : cluster.prove(&compared)) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_EQ(compared, tensors.size());
}

constexpr Move kMoves[] = {
    {"tp=1", "tp=2"},   {"tp=2", "tp=1"},        {"tp=2", "tp=4"},      {"tp=4", "tp=2"},
    {"fsdp=4", "tp=2"}, {"ep=2", "ep=4"},        {"pp=2", "tp=2"},      {"fsdp=3", "pp=2"},
    {"tp=2", "tp=2"},   {"tp=2,ep=2", "ep=4"},   {"tp=2,dp=2", "tp=4"}, {"fsdp=5", "fsdp=3"},
    {"dp=2", "dp=3"},   {"fsdp=2", "tp=2,ep=2"},
};
INSTANTIATE_TEST_SUITE_P(Layouts, ShardMoves, ::testing::ValuesIn(kMoves), [](const auto& info) {
  std::string name = std::string(info.param.from) + "_to_" + info.param.to;
  for (char& c : name) c = c == '=' || c == ',' ? '_' : c;
  return name;
});

// More ranks than key and value heads: neighbours hold the same ones, and each gets its own.
TEST(ShardMoveTest, SharedHeadsComeToEveryRankThatHasThem) {
  Cluster cluster(layout_for("tp=2", dense_tensors()), layout_for("tp=8", dense_tensors()));
  cluster.expect_sent(1);
  cluster.train(2);
  cluster.expect_sent(2);
  for (const Status& status : cluster.prove()) EXPECT_TRUE(status.ok()) << status.to_string();
}

// Cut into many slices and rounds.
TEST(ShardMoveTest, SmallBucketsTakeManyRounds) {
  const std::vector<ShardTensor> tensors = {{"a", DType::kBF16, {300, 64}},
                                            {"b", DType::kF32, {100, 7, 9}}};
  ShardOptions options{.bucket_bytes = 20000, .slice_bytes = 4096};
  Cluster cluster(layout_for("fsdp=3", tensors), layout_for("fsdp=2", tensors), options);
  cluster.expect_sent(1);
  cluster.train(2);
  cluster.expect_sent(2);
}

TEST(ShardMoveTest, NothingGoesWhereNothingChanged) {
  Cluster cluster(layout_for("tp=2", dense_tensors()), layout_for("tp=2", dense_tensors()));
  cluster.expect_sent(1);
  const Cluster::Outcome outcome = cluster.send(2);
  for (const ShardReport& report : outcome.sent) {
    EXPECT_EQ(report.num_changed, 0u);
    EXPECT_LT(report.sent_bytes, 300u);  // words, no weights
  }
  for (const Rank& rank : cluster.engines()) rank.expect(cluster.state());
}

// The digests that the disk path would have: of the whole tensors.
TEST(ShardMoveTest, ProofsAreTheDigestsOfTheTensors) {
  Cluster cluster(layout_for("fsdp=3", dense_tensors()), layout_for("tp=2", dense_tensors()));
  cluster.expect_sent(1);
  Proof all;
  for (const ShardReceiver& receiver : cluster.receivers()) {
    EXPECT_TRUE(all.add(*receiver.proof()).ok());
  }
  const auto digests = must(all.digests());
  for (const auto& [name, bytes] : cluster.state()) {
    EXPECT_EQ(digests.at(name), digest_of(DigestKind::kSum128, bytes)) << name;
  }
}

TEST(ShardMoveTest, AProofNamesTheTensorThatDiffers) {
  Cluster cluster(layout_for("tp=2", dense_tensors()), layout_for("fsdp=2", dense_tensors()));
  cluster.expect_sent(1);
  for (const LiveTensor& piece : cluster.engines()[1].live()) {
    if (piece.name == "lm_head.weight") piece.bytes[5] ^= 1;
  }
  for (const Status& status : cluster.prove()) {
    EXPECT_FAILS(status, kBaseMismatch, "1 tensors differ: \"lm_head.weight\"");
  }
}

// An engine rank whose weights are not what they should be does not take changes to them.
TEST(ShardMoveTest, WeightsThatSomebodyElseWroteAreNoticed) {
  Cluster cluster(layout_for("tp=2", dense_tensors()), layout_for("tp=2", dense_tensors()));
  cluster.expect_sent(1);
  for (const LiveTensor& piece : cluster.engines()[1].live()) piece.bytes[0] ^= 1;
  cluster.train(2);
  const Cluster::Outcome outcome = cluster.send(2);
  EXPECT_TRUE(outcome.engines[0].ok());
  EXPECT_FALSE(outcome.engines[1].ok()) << "changes on other weights";
  EXPECT_NE(outcome.engines[1].message().find("trainer rank 1, tensor "), std::string::npos);
  EXPECT_TRUE(outcome.trainers[1].ok());
  ASSERT_EQ(outcome.sent[1].notes.size(), 1u);
  cluster.train(3);
  const Cluster::Outcome next = cluster.send(3);
  EXPECT_EQ(next.received[0].num_delta, 1u);
  EXPECT_EQ(next.received[1].num_whole, 1u);
  cluster.expect_same();
}

// The others get the version; the next one brings both to whoever missed it.
TEST(ShardMoveTest, ADeadReceiverIsNamedAndRepairedByTheNextVersion) {
  ShardOptions options;
  options.history_bytes = uint64_t{1} << 20;
  Cluster cluster(layout_for("tp=2", dense_tensors()), layout_for("fsdp=2", dense_tensors()),
                  options);
  cluster.expect_sent(1);
  cluster.train(2);
  const Cluster::Outcome outcome = cluster.send(2, {3});
  for (const ShardReport& report : outcome.sent) EXPECT_EQ(report.lost, std::vector<unsigned>{3});
  for (const Status& status : outcome.trainers) EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(outcome.engines[0].ok()) << outcome.engines[0].to_string();
  cluster.engines()[0].expect(cluster.state());
  cluster.regroup();
  cluster.train(3);
  const Cluster::Outcome next = cluster.send(3);
  for (const ShardReport& report : next.received) EXPECT_EQ(report.num_whole, 0u);
  for (const ShardReport& report : next.sent) EXPECT_EQ(report.num_merged, 1u);
  cluster.expect_same();
}

TEST(ShardMoveTest, ADeadSenderIsNamedByAllThatNeedIt) {
  Cluster cluster(layout_for("tp=2", dense_tensors()), layout_for("fsdp=2", dense_tensors()));
  cluster.expect_sent(1);
  const State before = cluster.state();
  cluster.train(2);
  const Cluster::Outcome outcome = cluster.send(2, {1});
  EXPECT_TRUE(outcome.trainers[0].ok()) << outcome.trainers[0].to_string();
  EXPECT_EQ(outcome.sent[0].notes.size(), 2u);  // both engine ranks say that they have not got it
  for (unsigned rank = 0; rank < 2; ++rank) {
    EXPECT_FAILS(outcome.engines[rank], kUnavailable, "rank 1 is gone");
    cluster.engines()[rank].expect(before);
  }
  cluster.regroup();
  cluster.train(3);
  cluster.send(3);
  cluster.expect_same();
}

TEST(ShardMoveTest, TensorsThatChangeWhileTheyAreSentDoNotLetTheSnapshotDrift) {
  const std::vector<ShardTensor> tensors = {{"w", DType::kBF16, {64, 64}}};
  const ShardLayout layout = layout_for("tp=1", tensors);
  auto plan = std::make_shared<const ShardPlan>(*plan_shards(layout, layout));
  Rank trainer(layout, 0), engine(layout, 0);
  uint8_t reads = 0;
  const auto read = *read_live(trainer.live());
  auto sender = ShardSender::create(
      plan, 0, [&](const ShardTensor& tensor, const Box& box, std::span<uint8_t> contents) {
        trainer.live()[0].bytes[7] = ++reads;  // a trainer that goes on
        return read(tensor, box, contents);
      });
  auto receiver = ShardReceiver::create(plan, 0, *read_live(engine.live()));
  for (uint64_t version = 1; version < 4; ++version) {
    auto group = make_local_group(2).value();
    Result<ShardReport> sent = Status(Code::kInternal, "");
    std::thread thread([&] { sent = sender->send(*group[0], version); });
    const auto received = receiver->receive(*group[1]);
    thread.join();
    ASSERT_TRUE(sent.ok() && received.ok()) << received.status().to_string();
    EXPECT_EQ(sent->num_whole, 1u);
    ASSERT_EQ(sent->notes.size(), version == 1 ? 1u : 2u);  // why it comes whole, too
    EXPECT_NE(sent->notes.back().find("tensor \"w\" changed while it was sent"), std::string::npos);
    EXPECT_TRUE(receiver->commit(engine.live()).ok());
    EXPECT_FALSE(sender->version());
  }
}

TEST(ShardMoveTest, ATensorThatChangesBetweenTwoReceiversIsNoticed) {
  const std::vector<ShardTensor> tensors = {{"w", DType::kBF16, {64, 64}}};
  ShardLayout one, two;
  one.tensors = two.tensors = tensors;
  one.ranks = {{{0, {}}}};
  two.ranks = {{{0, {}}}, {{0, {}}}};
  auto plan = std::make_shared<const ShardPlan>(*plan_shards(one, two));
  Rank trainer(one, 0);
  std::vector<Rank> engines;
  for (unsigned rank = 0; rank < 2; ++rank) engines.emplace_back(two, rank);
  int reads_before_change = -1;
  const auto read = *read_live(trainer.live());
  ShardOptions options;
  options.threads = 1;  // the first receiver's read, then the second's
  auto sender = ShardSender::create(
      plan, 0,
      [&](const ShardTensor& tensor, const Box& box, std::span<uint8_t> contents) {
        if (reads_before_change-- == 0) trainer.live()[0].bytes[7] ^= 1;
        return read(tensor, box, contents);
      },
      options);
  std::vector<ShardReceiver> receivers;
  for (unsigned rank = 0; rank < 2; ++rank) {
    receivers.push_back(
        ShardReceiver::create(plan, rank, *read_live(engines[rank].live())).value());
  }
  const auto send = [&](uint64_t version) {
    auto group = make_local_group(3).value();
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        EXPECT_TRUE(receivers[rank].receive(*group[1 + rank]).ok());
        EXPECT_TRUE(receivers[rank].commit(engines[rank].live()).ok());
      });
    }
    auto sent = sender->send(*group[0], version);
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(sent.ok());
    return sent->notes;
  };
  EXPECT_TRUE(send(1).empty());
  reads_before_change = 1;
  EXPECT_NE(send(2).back().find("changed while it was sent"), std::string::npos);
  EXPECT_EQ(send(3).size(), 2u);  // why it comes whole, to each
  for (Rank& engine : engines)
    EXPECT_TRUE(std::ranges::equal(engine.live()[0].bytes, trainer.live()[0].bytes));
  EXPECT_TRUE(send(4).empty());
}

TEST(ShardMoveTest, WhatCouldNotBeReceivedIsNotCommitted) {
  const std::vector<ShardTensor> tensors = {{"w", DType::kBF16, {64, 64}}};
  const ShardLayout layout = layout_for("tp=1", tensors);
  auto plan = std::make_shared<const ShardPlan>(*plan_shards(layout, layout));
  Rank trainer(layout, 0), engine(layout, 0);
  bool broken = false;
  const auto read = *read_live(trainer.live());
  auto sender = ShardSender::create(
      plan, 0, [&](const ShardTensor& tensor, const Box& box, std::span<uint8_t> contents) {
        return broken ? io_error("the GPU has gone") : read(tensor, box, contents);
      });
  auto receiver = ShardReceiver::create(plan, 0, *read_live(engine.live()));
  for (uint64_t version = 1; version < 3; ++version) {
    broken = version == 2;
    auto group = make_local_group(2).value();
    std::thread thread([&] { EXPECT_EQ(sender->send(*group[0], version).ok(), !broken); });
    EXPECT_EQ(receiver->receive(*group[1]).ok(), !broken);
    thread.join();
    EXPECT_EQ(receiver->commit(engine.live()).ok(), !broken);
    receiver->committed();  // of nothing: it stays what it is
    EXPECT_EQ(receiver->version(), 1u);
  }
}

TEST(ShardMoveTest, ASenderThatCannotReadSaysSoToAll) {
  const std::vector<ShardTensor> tensors = dense_tensors();
  const ShardLayout one = layout_for("tp=1", tensors), two = layout_for("tp=2", tensors);
  auto plan = std::make_shared<const ShardPlan>(*plan_shards(one, two));
  auto sender = ShardSender::create(
      plan, 0, [](const auto&, const auto&, auto) { return io_error("the GPU has gone"); });
  std::vector<Rank> engines;
  for (unsigned rank = 0; rank < 2; ++rank) engines.emplace_back(two, rank);
  auto group = make_local_group(3).value();
  std::vector<Status> outcome(2);
  std::vector<std::thread> threads;
  for (unsigned rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto receiver = ShardReceiver::create(plan, rank, *read_live(engines[rank].live()));
      outcome[rank] = receiver->receive(*group[1 + rank]).status();
    });
  }
  EXPECT_FAILS(sender->send(*group[0], 1), kIo);
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : outcome) {
    EXPECT_EQ(status.message(), "trainer rank 0 could not send the version");
  }
}

TEST(ShardMoveTest, OtherPlansAndOtherGroupsAreRefused) {
  const std::vector<ShardTensor> tensors = dense_tensors();
  const ShardLayout two = layout_for("tp=2", tensors), rows = layout_for("fsdp=2", tensors);
  auto plan = std::make_shared<const ShardPlan>(*plan_shards(two, two));
  auto other = std::make_shared<const ShardPlan>(*plan_shards(two, rows));
  std::vector<Rank> ranks;
  for (unsigned rank = 0; rank < 4; ++rank) ranks.emplace_back(rank == 3 ? rows : two, rank % 2);
  auto group = make_local_group(4).value();
  std::vector<Status> outcome(4);
  in_threads(4, [&](unsigned rank) {
    auto read = *read_live(ranks[rank].live());
    if (rank < 2) {
      outcome[rank] = ShardSender::create(plan, rank, read)->send(*group[rank], 1).status();
    } else {
      const auto& own = rank == 3 ? other : plan;
      outcome[rank] = ShardReceiver::create(own, rank - 2, read)->receive(*group[rank]).status();
    }
    group[rank].reset();
  });
  EXPECT_FAILS(outcome[1], kConflict);
  EXPECT_EQ(outcome[1].message(), "engine rank 1 made another plan than trainer rank 1");
  EXPECT_FALSE(outcome[3].ok());
  EXPECT_TRUE(outcome[0].ok() && outcome[2].ok());

  auto small = make_local_group(3).value();
  const Status wrong =
      ShardSender::create(plan, 0, *read_live(ranks[0].live()))->send(*small[0], 1).status();
  EXPECT_FAILS(wrong, kInvalidArgument);
  EXPECT_EQ(wrong.message(),
            "shards: the plan is for rank 0 of 4 (2 trainer and 2 engine ranks), this is rank 0 of "
            "3");
  auto kept = std::make_shared<const ShardPlan>(*plan_shards(two, two, {.trainer = 1}));
  EXPECT_EQ(ShardSender::create(kept, 0, *read_live(ranks[0].live())).status().message(),
            "trainer rank 0: the plan was made for another rank");
}

// Random layouts, states and changes.
TEST(ShardMoveTest, RandomLayoutsMoveEveryBit) {
  std::mt19937 random(3);
  const auto below = [&](unsigned n) { return unsigned(random() % n); };
  for (int round = 0; round < 15; ++round) {
    const std::vector<ShardTensor> tensors = {{"a", DType::kBF16, {1 + below(40), 1 + below(40)}},
                                              {"b", DType::kF32, {1 + below(300)}},
                                              {"c", DType::kF8_E4M3, {3, 1 + below(9), 4}},
                                              {"d", DType::kI64, {1 + below(9)}}};
    const auto spec = [&] {
      const char* words[] = {"fsdp=", "dp=", "fsdp=2,dp="};
      return words[below(3)] + std::to_string(1 + below(4));
    };
    const std::string from = spec(), to = spec();
    SCOPED_TRACE(from + " -> " + to);
    Cluster cluster(layout_for(from, tensors), layout_for(to, tensors));
    for (unsigned version = 1; version < 4; ++version) {
      cluster.train(version + unsigned(round));
      cluster.expect_sent(version);
    }
  }
}

}  // namespace
}  // namespace deltawire::testing
