// Replicas of tensors in memory: they hold an exact version or report that they hold none.
#include "deltawire/tensor_replica.h"

#include "chain/heartbeat.h"
#include "chain/names.h"
#include "support/live_model.h"
#include "support/shard.h"
#include "support/thread_group.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST_F(TensorReplicaTest, FollowsVersionByVersion) {
  Memory memory(model_);
  auto replica = must(open(&memory));
  EXPECT_FALSE(replica.version().has_value());
  for (uint64_t version = 0; version < 5; ++version) {
    const auto report = must(replica.pull());
    EXPECT_EQ(report.version, version);
    EXPECT_TRUE(report.changed);
    EXPECT_EQ(replica.version(), version);
    EXPECT_TRUE(memory.is(model_));
    step();
  }
  EXPECT_EQ(must(replica.head()), 5);
  ASSERT_TRUE(replica.pull().ok());
  const auto again = must(replica.pull());
  EXPECT_FALSE(again.changed);
  EXPECT_EQ(again.version, 5);
}

TEST_F(TensorReplicaTest, LateJoinerAppliesAllVersionsAtOnce) {
  for (int i = 0; i < 4; ++i) step();
  Memory memory(model_, 0x5a);
  auto replica = open(&memory);
  const auto report = must(replica->pull());
  EXPECT_EQ(report.version, 4);
  EXPECT_EQ(report.num_hops, 5);
  EXPECT_FALSE(report.from.has_value());
  EXPECT_TRUE(memory.is(model_));
}

TEST_F(TensorReplicaTest, AppliesSeveralVersionsAtOnce) {
  auto [memory, replica] = pulled();
  for (int i = 0; i < 3; ++i) step();
  const auto report = must(replica.pull());
  EXPECT_EQ(report.num_hops, 3);
  EXPECT_EQ(report.from, 0);
  EXPECT_TRUE(memory.is(model_));
}

TEST_F(TensorReplicaTest, RecognisesExistingWeights) {
  for (int i = 0; i < 3; ++i) step();
  Memory memory(model_);
  memory.become(states_[1]);
  auto replica = open(&memory);
  const auto report = must(replica->pull());
  EXPECT_EQ(report.from, 1);
  EXPECT_EQ(report.num_hops, 2);
  EXPECT_FALSE(report.repaired);
  EXPECT_TRUE(memory.is(model_));
}

TEST_F(TensorReplicaTest, FetchesNothingForTheVersionItHolds) {
  step();
  Memory memory(model_);
  memory.become(model_);
  auto replica = open(&memory);
  const auto report = must(replica->pull());
  EXPECT_FALSE(report.changed);
  EXPECT_EQ(report.bytes, 0);
  EXPECT_EQ(replica->version(), 1);
}

TEST_F(TensorReplicaTest, PrepareWritesNothing) {
  auto [memory, replica] = pulled();
  step();
  const auto prepared = must(replica.prepare());
  EXPECT_TRUE(prepared.changed);
  EXPECT_GT(prepared.num_changed, 0);
  EXPECT_TRUE(memory.is(states_[0]));
  EXPECT_EQ(replica.version(), 0);
  must(replica.commit());
  EXPECT_TRUE(memory.is(states_[1]));
  EXPECT_EQ(replica.version(), 1);
}

TEST_F(TensorReplicaTest, DetectsAndReloadsWrongBytes) {
  auto [memory, replica] = pulled();
  step();
  memory.bytes(0)[5] ^= 4;
  const auto report = must(replica.pull());
  EXPECT_TRUE(report.repaired);
  EXPECT_TRUE(contains(report.repair_reason, "embed"));
  EXPECT_TRUE(memory.is(model_));
}

TEST_F(TensorReplicaTest, WithoutRepairWrongBytesAreAnError) {
  Memory memory(model_);
  TensorReplicaOptions how = options();
  auto first = open(&memory);
  ASSERT_TRUE(first->pull().ok());
  how.repair = false;
  auto replica = open(&memory, how);
  ASSERT_TRUE(replica->pull().ok());  // is at version 0 already
  step();
  memory.bytes(0)[5] ^= 4;
  const auto before = memory.copy();
  EXPECT_FAILS(replica->pull(), kBaseMismatch, "\"embed\"");
  EXPECT_EQ(memory.copy(), before);
  Memory unknown(model_, 1);
  auto other = open(&unknown, how);
  EXPECT_FAILS(other->pull(), kBaseMismatch, "hold no version");
}

TEST_F(TensorReplicaTest, VerifyAllChecksUnchangedTensors) {
  Memory memory(model_);
  TensorReplicaOptions how = options();
  how.verify_all = true;
  how.repair = false;
  memory.become(model_);
  auto replica = open(&memory, how);
  ASSERT_TRUE(replica->pull().ok());
  memory.bytes(5)[0] ^= 1;  // "tables", which steps leave alone
  EXPECT_FAILS(replica->pull(), kBaseMismatch, "\"tables\"");
  step();
  EXPECT_FAILS(replica->pull(), kBaseMismatch, "\"tables\"");
  memory.bytes(5)[0] ^= 1;
  ASSERT_TRUE(replica->pull().ok());
  EXPECT_TRUE(memory.is(model_));
}

TEST_F(TensorReplicaTest, CorruptPartChangesNothing) {
  auto [memory, replica] = pulled();
  step();
  damage(last_part());
  EXPECT_FAILS(replica.pull(), kCorruption, "part-00000");
  EXPECT_TRUE(memory.is(states_[0]));
  EXPECT_EQ(replica.version(), 0);
}

TEST_F(TensorReplicaTest, FailedDownloadChangesNothingAndIsRetried) {
  auto [memory, replica] = pulled();
  step();
  const std::string part = last_part();
  const std::string text = store_->get(part, 1 << 24).value();
  ASSERT_TRUE(store_->remove(part).ok());
  EXPECT_FAILS(replica.pull(), kNotFound, "part-00000");
  EXPECT_TRUE(memory.is(states_[0]));
  ASSERT_TRUE(store_->put(part, MemoryBody(text)).ok());
  ASSERT_TRUE(replica.pull().ok());
  EXPECT_TRUE(memory.is(states_[1]));
}

TEST_F(TensorReplicaTest, SkipsADamagedOrMissingPart) {
  for (const bool missing : {false, true}) {
    restart_with_anchors();
    auto [memory, replica] = pulled();
    step();
    step();  // version 2 is an anchor
    if (missing) {
      ASSERT_TRUE(store_->remove(part_of(1)).ok());
    } else {
      damage(part_of(1));
    }
    TensorReplicaOptions strict = options();
    strict.repair = false;
    Memory other(model_);
    other.become(states_[0]);
    auto refuses = open(&other, strict);
    EXPECT_TRUE(
        is_failure(refuses->pull(), missing ? Code::kNotFound : Code::kCorruption, part_of(1)));
    EXPECT_TRUE(other.is(states_[0]));

    const auto report = must(replica.pull());
    EXPECT_TRUE(report.repaired);
    EXPECT_TRUE(contains(report.repair_reason, part_of(1)));
    EXPECT_EQ(report.from, 0);
    EXPECT_EQ(report.num_hops, 1);
    EXPECT_EQ(replica.version(), 2);
    EXPECT_TRUE(memory.is(model_));
  }
}

TEST_F(TensorReplicaTest, FreshReplicaSkipsADamagedFullVersion) {
  restart_with_anchors();
  step();
  step();
  const std::string anchor = objects_of(*store_, "full/0000000002").back();
  damage(anchor);
  Memory memory(model_, 3);
  auto replica = open(&memory);
  const auto report = must(replica->pull());
  EXPECT_TRUE(report.repaired);
  EXPECT_EQ(report.num_hops, 3);  // from the seed
  EXPECT_TRUE(memory.is(model_));
  // Without another path, the first defect is reported.
  damage(part_of(1));
  Memory lost(model_, 3);
  const auto before = lost.copy();
  EXPECT_FAILS(open(&lost)->pull(), kCorruption, anchor);
  EXPECT_EQ(lost.copy(), before);
}

// A held version is still a starting point, whatever is wrong in the store.
TEST_F(TensorReplicaTest, SkipsADamagedAnchorWhenHoldingAVersion) {
  auto [memory, replica] = pulled();
  // An anchor is written once the deltas together are larger: then it is the cheapest path.
  const size_t num_before = objects_of(*store_, "full/").size();
  while (objects_of(*store_, "full/").size() == num_before && states_.size() < 50) step(1);
  const std::string anchor = objects_of(*store_, "full/").back();
  damage(anchor);
  const auto report = must(replica.pull());
  EXPECT_TRUE(report.repaired);
  EXPECT_TRUE(contains(report.repair_reason, anchor));
  EXPECT_FALSE(report.whole);
  EXPECT_EQ(report.from, 0);
  EXPECT_EQ(report.num_hops, states_.size() - 1);
  EXPECT_TRUE(memory.is(model_));
}

TEST_F(TensorReplicaTest, FailedPullLeavesNoFiles) {
  const TempFolder folder;
  TensorReplicaOptions how = options();
  how.scratch = folder.path();
  step();
  const std::string part = last_part();
  const std::string text = store_->get(part, 1 << 24).value();
  damage(part);
  Memory memory(model_, 3);
  auto replica = open(&memory, how);
  EXPECT_FAILS(replica->pull(), kCorruption, part);
  uint64_t left = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file()) left += entry.file_size();
  }
  EXPECT_EQ(left, 0);
  ASSERT_TRUE(store_->put(part, MemoryBody(text)).ok());
  ASSERT_TRUE(replica->pull().ok());
  EXPECT_TRUE(memory.is(model_));
}

// Replicas of files and of tensors use the same path and report the same.
TEST_F(TensorReplicaTest, FilesAndTensorsReportTheSamePath) {
  restart_with_anchors();
  const TempFolder folder;
  ReplicaOptions files{.limits = {.threads = 2}, .heartbeat = false};
  auto local = must(Replica::open(store_, folder.path() / "local", files));
  Memory memory(model_);
  auto tensors = open(&memory);
  const auto phases = [](const PullReport& report) {
    std::vector<std::string> names;
    for (const Phase& phase : report.phases) names.push_back(phase.name);
    std::erase_if(names, [](const std::string& name) {  // of files alone, or of tensors alone
      return name == "recognise" || name == "journal" || name == "sync" || name == "record" ||
             name == "check";
    });
    return names;
  };
  for (int round = 0; round < 4; ++round) {
    const auto one = local.pull(), other = tensors->pull();
    ASSERT_TRUE(one.ok()) << one.status().to_string();
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    EXPECT_EQ(phases(*one), phases(*other));
    EXPECT_EQ(one->from, other->from);
    EXPECT_EQ(one->version, other->version);
    EXPECT_EQ(one->whole, other->whole);
    EXPECT_EQ(one->bytes, other->bytes);
    EXPECT_EQ(one->num_hops, other->num_hops);
    EXPECT_EQ(one->num_tensors, other->num_tensors);
    EXPECT_EQ(one->weights_bytes, other->weights_bytes);
    EXPECT_EQ(one->repaired, other->repaired);
    EXPECT_EQ(one->repair_reason, other->repair_reason);
    if (!one->whole) {
      EXPECT_EQ(one->num_changed, other->num_changed);
    }
    EXPECT_TRUE(memory.is(model_));
    // First one version behind, then three, then one with a bad part.
    for (int i = 0; i < (round == 1 ? 3 : 1); ++i) step();
    if (round == 2) {
      step();
      damage(part_of(states_.size() - 2));
    }
  }
}

TEST_F(TensorReplicaTest, LoadsTensorsNewerThanTheLastFullVersion) {
  model_.tensors.push_back(make_tensor("adapter", DType::kBF16, {40, 64}, 7));
  model_.tensors[1] = make_tensor("layer.0.up", DType::kF32, {32, 10}, 8);  // another form
  publish();
  step();
  model_.tensors.erase(model_.tensors.begin() + 5);  // "tables"
  publish();
  for (uint64_t version = 0; version < states_.size(); ++version) {
    Memory memory(states_[version], 1);
    auto replica = open(&memory);
    EXPECT_EQ(must(replica->pull(version)).num_hops, version + 1);
    EXPECT_TRUE(memory.is(states_[version])) << version;
  }
}

TEST_F(TensorReplicaTest, EditsBetweenPrepareAndCommitAreNeverAVersion) {
  Memory memory(model_);
  auto replica = open(&memory);
  expect_edits_are_never_called_a_version(&memory, &*replica);
}

TEST_F(TensorReplicaTest, ErrorsNameTensorsThatDifferFromTheVersion) {
  const auto refused = [&](const std::function<void(std::vector<LiveTensor>*)>& change,
                           const std::string& message) {
    Memory memory(model_);
    change(&memory.tensors);
    const auto before = memory.copy();
    auto replica = must(TensorReplica::open(store_, memory.tensors, options()));
    EXPECT_FAILS(replica.pull(), kInvalidArgument, message);
    EXPECT_EQ(memory.copy(), before);
  };
  refused([](auto* tensors) { tensors->erase(tensors->begin() + 3); },
          "tensor \"norm\": is in the version but was not given");
  refused([](auto* tensors) { (*tensors)[3].dtype = DType::kI32; },
          "tensor \"norm\": the version has F32 [64], but the given tensor is I32 [64]");
  refused(
      [](auto* tensors) {
        (*tensors)[0].shape = {100, 128};
      },
      "but the given tensor is BF16 [100, 128]");
  static std::vector<uint8_t> extra(4);
  refused(
      [](auto* tensors) {
        tensors->push_back({"more", DType::kF32, {1}, extra});
      },
      "tensor \"more\": was given");
}

TEST_F(TensorReplicaTest, RejectsInvalidTensors) {
  Memory memory(model_);
  memory.tensors[0].bytes = memory.tensors[0].bytes.first(10);
  EXPECT_FAILS(open(&memory), kInvalidArgument, "\"embed\"");
  Memory twice(model_);
  twice.tensors.push_back(twice.tensors[2]);
  EXPECT_FAILS(open(&twice), kInvalidArgument, "given twice");
}

TEST_F(TensorReplicaTest, AppliesDenseAndFullVersions) {
  auto [memory, replica] = pulled();
  for (const double density : {0.4, 1.0, 0.001}) {
    step(density);
    must(replica.pull());
    EXPECT_TRUE(memory.is(model_)) << density;
  }
}

TEST_F(TensorReplicaTest, JoinsBoxesOfOneLargeTensor) {
  // With little memory a publisher splits large tensors into boxes, over several parts.
  model_ = Model::make(900);  // "embed" has 23 MB
  store_ = std::make_shared<HookedStore>();
  states_.clear();
  PublishOptions how{.limits = {.memory_bytes = uint64_t{32} << 20}};
  publisher_.emplace(Publisher::open(store_, how).value());
  publish();
  Memory memory(model_);
  memory.become(model_);
  auto replica = open(&memory);
  ASSERT_TRUE(replica->pull().ok());
  step();
  must(replica->pull());
  EXPECT_TRUE(memory.is(model_));
  // A change outside all boxes of the next step is detected, too.
  TestTensor& embed = model_.tensors[0];
  embed.bytes[0] ^= 1;  // one box changes
  publish();
  memory.bytes(0).back() ^= 1;
  EXPECT_TRUE(must(replica->pull()).repaired);
  EXPECT_TRUE(memory.is(model_));
}

TEST_F(TensorReplicaTest, JoinsBoxesOfSeveralRanks) {
  store_ = std::make_shared<HookedStore>();
  ThreadGroup group(2);
  std::vector<std::optional<Publisher>> ranks(2);
  const auto publish_together = [&] {
    std::vector<Status> outcomes(2);
    in_threads(2, [&](unsigned rank) {
      const PublishOptions how{.ranks = group.ranks(rank), .limits = {.threads = 1}};
      if (!ranks[rank]) ranks[rank].emplace(must(Publisher::open(store_, how)));
      const Shard shard(model_, rank, 2);
      outcomes[rank] = ranks[rank]->publish(shard.views()).status();
    });
    for (const Status& outcome : outcomes) must(outcome);
  };
  publish_together();
  auto [memory, replica] = pulled();
  EXPECT_TRUE(memory.is(model_));
  for (int i = 0; i < 2; ++i) {
    model_.step();
    publish_together();
    EXPECT_FALSE(must(replica.pull()).repaired);
    EXPECT_TRUE(memory.is(model_));
  }
  // Weights that consist of such tensors are recognised, too.
  auto other = open(&memory);
  EXPECT_FALSE(must(other->pull()).changed);
  EXPECT_EQ(other->version(), 2);
}

TEST_F(TensorReplicaTest, HeartbeatReportsTheHeldVersion) {
  Memory memory(model_);
  TensorReplicaOptions how = options();
  how.heartbeat = true;
  how.name = "engine-7";
  {
    auto replica = open(&memory, how);
    ASSERT_TRUE(replica->pull().ok());
  }
  const auto beats = must(list_heartbeats(*store_));
  ASSERT_EQ(beats.size(), 1);
  ASSERT_TRUE(beats[0].heartbeat.ok());
  EXPECT_EQ(beats[0].heartbeat->name, "engine-7");
  EXPECT_EQ(beats[0].heartbeat->held, Chain::open(store_)->version(0)->identity());
}

}  // namespace
}  // namespace deltawire::testing
