// Replicas that catch up, with every kind of store, path and tensor.
#include "deltawire/replica.h"

#include "chain/heartbeat.h"
#include "delta/delta_reader.h"
#include "store/directory_store.h"
#include "support/hooked_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

std::vector<TestTensor> model() {
  return {make_tensor("embed", DType::kBF16, {300, 40}, 1),
          make_tensor("bias", DType::kF32, {77}, 2),
          make_tensor("scale", DType::kF8_E4M3, {64, 3}, 3),
          make_tensor("steps", DType::kI64, {5}, 4),
          make_tensor("mask", DType::kBool, {9}, 5),
          make_tensor("half", DType::kF16, {33, 3}, 6),
          make_tensor("double", DType::kF64, {21}, 7),
          make_tensor("complex", DType::kC64, {11}, 8),
          make_tensor("packed", DType::kF4, {2, 16}, 9),
          make_tensor("scalar", DType::kBF16, {}, 10),
          make_tensor("empty", DType::kBF16, {0, 4}, 11),
          make_tensor("still", DType::kBF16, {50, 20}, 12)};
}

void step(std::vector<TestTensor>* tensors, uint64_t seed, double density = 0.05) {
  for (TestTensor& tensor : *tensors) {
    if (tensor.name != "still") change(&tensor, density, seed * 100 + tensor.bytes.size());
  }
}

enum class Where { kMemory, kDirectory };

class ReplicaTest : public ::testing::TestWithParam<Where> {
 protected:
  ReplicaTest() : chain_(make_store()) {}

  std::shared_ptr<Store> make_store() const {
    if (GetParam() == Where::kMemory) return std::make_shared<MemoryStore>("test");
    return std::make_shared<DirectoryStore>(folder_.path() / "store");
  }
  fs::path local(const std::string& name = "local") const { return folder_.path() / name; }
  static ReplicaOptions options() { return {.limits = {.threads = 2}, .heartbeat = false}; }
  Result<PullReport> pull(std::optional<uint64_t> version = {},
                          const ReplicaOptions& how = options()) {
    auto replica = Replica::open(chain_.store(), local(), how);
    if (!replica.ok()) return replica.status();
    return replica->pull(version);
  }
  // Publishes the seed and `count` deltas.
  void publish(size_t count, size_t num_files = 1) {
    tensors_ = model();
    chain_.publish_full(tensors_, num_files);
    for (size_t i = 0; i < count; ++i) {
      step(&tensors_, i + 1);
      chain_.publish_delta(tensors_, "auto", num_files);
    }
  }

  TempFolder folder_;
  TestChain chain_;
  std::vector<TestTensor> tensors_;
};

INSTANTIATE_TEST_SUITE_P(Stores, ReplicaTest, ::testing::Values(Where::kMemory, Where::kDirectory),
                         [](const auto& info) {
                           return info.param == Where::kMemory ? "Memory" : "Directory";
                         });

TEST_P(ReplicaTest, StartsWithAFullVersion) {
  publish(0);
  const auto report = must(pull());
  EXPECT_EQ(report.version, 0);
  EXPECT_FALSE(report.from);
  EXPECT_TRUE(report.changed);
  EXPECT_FALSE(report.repaired);
  EXPECT_EQ(report.num_hops, 1);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(0)));
  EXPECT_EQ(read_file(local() / "config.json"), "{}\n");
  const auto state = must(read_replica_state(local()));
  EXPECT_EQ(state.version, 0);
  EXPECT_EQ(state.run, chain_.chain.run());
  EXPECT_EQ(state.manifest, chain_.records[0].digest.hex());
  EXPECT_EQ(state.state, chain_.records[0].manifest.state.hex());
  EXPECT_FALSE(state.patching_to);
}

TEST_P(ReplicaTest, PatchesInPlace) {
  publish(3);
  ASSERT_TRUE(pull(0).ok());
  const auto inode = fs::hard_link_count(local() / "model.safetensors");
  fs::create_hard_link(local() / "model.safetensors", local("same-file"));
  const auto report = must(pull(1));
  EXPECT_EQ(report.from, 0);
  EXPECT_EQ(report.version, 1);
  EXPECT_GT(report.num_changed, 0);
  EXPECT_EQ(report.bytes, chain_.records[1].manifest.part_bytes());
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(1)));
  // The same file, not a new one of its name.
  EXPECT_EQ(fs::hard_link_count(local() / "model.safetensors"), inode + 1);
  // The step leaves no temporary files.
  for (const auto& item : fs::directory_iterator(local() / ".deltawire")) {
    const std::string name = item.path().filename().string();
    EXPECT_TRUE(name == "lock" || name == "state.json") << name;
  }
}

TEST_P(ReplicaTest, IsExactAtEveryVersion) {
  publish(4, 3);
  for (uint64_t version = 0; version <= 4; ++version) {
    must(pull(version));
    ASSERT_TRUE(is_identical(local(), chain_.checkpoint(version))) << version;
  }
}

TEST_P(ReplicaTest, AppliesSeveralVersionsAtOnce) {
  publish(5, 2);
  ASSERT_TRUE(pull(1).ok());
  const auto report = must(pull());
  EXPECT_EQ(report.version, 5);
  EXPECT_EQ(report.num_hops, 4);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(5)));
}

TEST_P(ReplicaTest, UsesCheaperMergedDeltasAndAnchors) {
  publish(6);
  chain_.add_merged(1, 5);
  ASSERT_TRUE(pull(1).ok());
  auto report = pull();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->num_hops, 2);  // 1 -> 5 -> 6
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(6)));

  chain_.add_anchor(6);
  auto late = must(Replica::open(chain_.store(), local("late"), options()));
  report = late.pull();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->num_hops, 1);
  EXPECT_TRUE(is_identical(local("late"), chain_.checkpoint(6)));
}

TEST_P(ReplicaTest, StartsFromAnAnchorAndContinuesWithDeltas) {
  publish(3, 2);
  EXPECT_EQ(must(pull()).num_hops, 4);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(3)));
  EXPECT_TRUE(fs::exists(local() / "model.safetensors.index.json"));
}

TEST_P(ReplicaTest, GoesBackToAnOlderVersion) {
  publish(3);
  ASSERT_TRUE(pull().ok());
  const auto report = must(pull(2));
  EXPECT_EQ(report.version, 2);
  EXPECT_FALSE(report.repaired);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(2)));
}

TEST_P(ReplicaTest, DoesNothingAtTheHead) {
  publish(1);
  ASSERT_TRUE(pull().ok());
  const auto report = must(pull());
  EXPECT_FALSE(report.changed);
  EXPECT_EQ(report.version, 1);
  EXPECT_EQ(report.from, 1);
}

TEST_P(ReplicaTest, EveryCodecIsExact) {
  tensors_ = model();
  chain_.publish_full(tensors_);
  const std::vector<std::string> codecs = {"raw", "gaps", "adaptive", "tight"};
  for (size_t i = 0; i < codecs.size(); ++i) {
    step(&tensors_, 50 + i, i % 2 == 0 ? 0.02 : 0.9);
    chain_.publish_delta(tensors_, codecs[i]);
  }
  // One by one, and all in one step.
  for (uint64_t version = 0; version <= codecs.size(); ++version) {
    ASSERT_TRUE(pull(version).ok());
    ASSERT_TRUE(is_identical(local(), chain_.checkpoint(version))) << version;
  }
  auto other = Replica::open(chain_.store(), local("other"), options());
  ASSERT_TRUE(other.ok() && other->pull(0).ok());
  must(other->pull());
  EXPECT_TRUE(is_identical(local("other"), chain_.checkpoint(codecs.size())));
}

TEST_P(ReplicaTest, HandlesManyPartsAndUnchangedVersions) {
  tensors_ = model();
  chain_.publish_full(tensors_);
  step(&tensors_, 1, 0.5);
  chain_.publish_delta(tensors_, "auto", 1, 1);  // each is decoded as it comes
  EXPECT_GT(chain_.records[1].manifest.parts.size(), 2);
  chain_.publish_delta(tensors_);  // the same state again
  ASSERT_TRUE(pull(0).ok());
  EXPECT_FALSE(must(pull(1)).repaired);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(1)));
  const auto report = must(pull(2));
  EXPECT_TRUE(report.changed);
  EXPECT_EQ(report.num_changed, 0);
  EXPECT_EQ(read_replica_state(local())->version, 2);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(2)));
}

TEST_P(ReplicaTest, TensorsMayAppearDisappearAndChangeShape) {
  publish(1, 2);
  ASSERT_TRUE(pull().ok());
  std::erase_if(tensors_, [](const TestTensor& tensor) { return tensor.name == "bias"; });
  tensors_.push_back(make_tensor("zz.new", DType::kBF16, {30, 3}, 40));
  for (TestTensor& tensor : tensors_) {
    if (tensor.name == "half") tensor = make_tensor("half", DType::kF32, {5}, 41);
  }
  chain_.publish_delta(tensors_, "auto", 2);
  step(&tensors_, 9);
  chain_.publish_delta(tensors_, "auto", 2);
  auto report = pull(2);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->repaired);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(2)));
  report = pull(3);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(3)));
  // From an anchor past the change, and from before it in one step.
  auto late = must(Replica::open(chain_.store(), local("late"), options()));
  ASSERT_TRUE(late.pull(3).ok());
  EXPECT_TRUE(is_identical(local("late"), chain_.checkpoint(3)));
  auto behind = must(Replica::open(chain_.store(), local("behind"), options()));
  ASSERT_TRUE(behind.pull(0).ok());
  report = behind.pull(3);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(is_identical(local("behind"), chain_.checkpoint(3)));
}

TEST_P(ReplicaTest, FullVersionReplacesAndRemovesFiles) {
  publish(0, 3);
  ASSERT_TRUE(pull().ok());
  std::ofstream(local() / "mine.txt") << "not the store's";
  step(&tensors_, 3);
  chain_.publish_full(tensors_, 2);
  must(pull());
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(1)));
  EXPECT_FALSE(fs::exists(local() / "a-00003.safetensors"));
  EXPECT_EQ(read_file(local() / "mine.txt"), "not the store's");
}

TEST_P(ReplicaTest, PrepareChangesNothingUntilCommit) {
  publish(2);
  auto replica = must(Replica::open(chain_.store(), local(), options()));
  ASSERT_TRUE(replica.pull(0).ok());
  const std::string before = read_file(local() / "model.safetensors");
  const auto prepared = must(replica.prepare());
  EXPECT_TRUE(prepared.changed);
  EXPECT_EQ(read_file(local() / "model.safetensors"), before);
  EXPECT_EQ(replica.state()->version, 0);
  EXPECT_EQ(must(replica.commit()).version, 2);
  EXPECT_EQ(replica.state()->version, 2);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(2)));
  // Nothing is prepared any more.
  EXPECT_FALSE(must(replica.commit()).changed);
}

TEST_P(ReplicaTest, DetectsAnEditBetweenPrepareAndCommit) {
  publish(1);
  auto replica = must(Replica::open(chain_.store(), local(), options()));
  ASSERT_TRUE(replica.pull(0).ok());
  ASSERT_TRUE(replica.prepare().ok());
  overwrite(local() / "model.safetensors", -1, "x");
  EXPECT_FAILS(replica.commit(), kBaseMismatch, "model.safetensors");
  // The next pull detects and repairs it.
  EXPECT_TRUE(must(replica.pull()).repaired);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(1)));
}

TEST_P(ReplicaTest, CommitIsVisibleAtOnceAndRecordedBySettle) {
  publish(1);
  auto replica = Replica::open(chain_.store(), local(), options());
  ASSERT_TRUE(replica->pull(0).ok());
  ASSERT_TRUE(replica->prepare().ok());
  auto report = must(replica->commit());
  EXPECT_EQ(replica->state()->version, 1);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(1)));
  EXPECT_EQ(read_replica_state(local())->version, 0);
  EXPECT_EQ(read_replica_state(local())->patching_to, 1);
  // What a process that dies now leaves behind.
  fs::copy(local(), local("dead"), fs::copy_options::recursive);
  ASSERT_TRUE(replica->settle(&report).ok());
  EXPECT_EQ(report.phases.back().name, "record");
  EXPECT_EQ(read_replica_state(local())->version, 1);
  EXPECT_FALSE(read_replica_state(local())->patching_to);
  EXPECT_FALSE(fs::exists(local() / ".deltawire/journal"));
  ASSERT_TRUE(replica->settle().ok());  // nothing to do
  auto next = must(Replica::open(chain_.store(), local("dead"), options()));
  EXPECT_EQ(next.state()->patching_to, 1);
  const auto recovered = must(next.pull());
  EXPECT_TRUE(recovered.recovered);
  EXPECT_FALSE(recovered.repaired);
  EXPECT_TRUE(is_identical(local("dead"), chain_.checkpoint(1)));
}

TEST_P(ReplicaTest, NextStepOrCloseSettlesACommit) {
  publish(2);
  {
    auto replica = Replica::open(chain_.store(), local(), options());
    ASSERT_TRUE(replica->pull(0).ok());
    for (const uint64_t version : {1, 2}) {
      ASSERT_TRUE(replica->prepare(version).ok());
      ASSERT_TRUE(replica->commit().ok());
    }
    EXPECT_EQ(read_replica_state(local())->version, 1);
  }
  EXPECT_EQ(read_replica_state(local())->version, 2);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(2)));
}

TEST_P(ReplicaTest, RefusesATensorInTwoParts) {
  publish(0);
  ASSERT_TRUE(pull().ok());
  step(&tensors_, 1);
  chain_.tamper = [](Manifest* manifest) {
    manifest->parts.push_back(manifest->parts[0]);
    manifest->chain_bytes += manifest->parts[0].size_bytes;
  };
  chain_.publish_delta(tensors_);
  EXPECT_FAILS(pull(), kCorruption, "covers elements");
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(0)));
}

TEST_P(ReplicaTest, KeepingUpTakesFourRequestsAndTheParts) {
  publish(0);
  auto counted = std::make_shared<HookedStore>(chain_.store());
  auto replica = Replica::open(counted, local(), options());
  ASSERT_TRUE(replica->pull().ok());
  for (uint64_t version = 1; version <= 3; ++version) {
    step(&tensors_, version);
    chain_.publish_delta(tensors_);
    counted->requests = 0;
    ASSERT_TRUE(replica->pull(must(replica->head())).ok());
    EXPECT_EQ(replica->state()->version, version);
    EXPECT_EQ(counted->requests, 4 + chain_.records[version].manifest.parts.size());
  }
}

// The redo record is an ordinary delta.
TEST_P(ReplicaTest, RedoRecordIsAReadableDelta) {
  publish(2);
  auto replica = must(Replica::open(chain_.store(), local(), options()));
  ASSERT_TRUE(replica.pull(0).ok());
  ASSERT_TRUE(replica.prepare().ok());
  const fs::path redo = local() / ".deltawire/journal.new/redo/redo-00000.safetensors";
  const auto delta = must(open_delta(redo));
  EXPECT_EQ(delta.info.base, chain_.records[0].manifest.state);
  EXPECT_EQ(delta.info.target, chain_.records[2].manifest.state);
  must(apply_delta(redo, chain_.checkpoint(0) / "model.safetensors", local("applied.safetensors"),
                   {}));
  EXPECT_TRUE(
      is_identical(local("applied.safetensors"), chain_.checkpoint(2) / "model.safetensors"));
}

TEST_P(ReplicaTest, JoinsBoxesOfSeveralRanks) {
  tensors_ = {make_tensor("w", DType::kBF16, {64, 48}, 1), make_tensor("v", DType::kBF16, {9}, 2)};
  chain_.publish_full(tensors_);
  ASSERT_TRUE(pull().ok());
  for (int round = 0; round < 2; ++round) {
    const TestTensor before = tensors_[0];
    change(&tensors_[0], 0.1, 5 + round);
    std::map<std::string, std::vector<BoxDigest>> boxes;
    std::vector<fs::path> parts;
    for (uint64_t rank = 0; rank < 3; ++rank) {
      const Box box{{0, rank * 16}, {64, 16}};
      std::vector<uint8_t> old_box(64 * 16 * 2), new_box(64 * 16 * 2);
      copy_box_out(box, DType::kBF16, before.shape, before.bytes, old_box);
      copy_box_out(box, DType::kBF16, before.shape, tensors_[0].bytes, new_box);
      parts.push_back(local("rank-" + std::to_string(rank) + ".safetensors"));
      ASSERT_TRUE(write_part(parts.back(),
                             {{"w", DType::kBF16, before.shape, box, old_box, new_box}},
                             chain_.records[chain_.head()].manifest.state, Digest{}, {})
                      .ok());
      boxes["w"].push_back({box, digest_of(DigestKind::kSum128, new_box)});
    }
    chain_.publish_parts(tensors_, parts, boxes);
  }
  auto report = pull(1);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(1)));
  report = pull(2);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->repaired);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(2)));
}

TEST_P(ReplicaTest, HeartbeatReportsHeldAndServedVersions) {
  publish(1);
  ReplicaOptions how = options();
  how.heartbeat = true;
  how.name = "rollout-7";
  {
    auto replica = must(Replica::open(chain_.store(), local(), how));
    ASSERT_TRUE(replica.pull().ok());
    ASSERT_TRUE(replica.set_serving(replica.state()).ok());
  }
  const Identity held = Chain::open(chain_.store())->version(1)->identity();
  const auto beat = must(read_heartbeat(*chain_.store(), "rollout-7"));
  EXPECT_EQ(beat.held, held);
  EXPECT_EQ(beat.serving, held);
  EXPECT_EQ(beat.interval_seconds, 60U);
  EXPECT_FALSE(beat.lease);
  EXPECT_EQ(read_replica_state(local())->serving, held);
}

TEST_P(ReplicaTest, ProgressReachesItsEndAndCanCancel) {
  publish(2);
  uint64_t last = 0, total = 0;
  ReplicaOptions how = options();
  how.progress = [&](uint64_t done, uint64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
    return true;
  };
  // It counts exactly the fetched bytes: first a full version, then one delta.
  for (const uint64_t version : {1, 2}) {
    last = total = 0;
    EXPECT_EQ(total, must(pull(version, how)).bytes);
    EXPECT_EQ(last, total);
  }
  how.progress = [](uint64_t, uint64_t) { return false; };
  EXPECT_FAILS(pull(1, how), kCancelled);
  EXPECT_TRUE(is_identical(local(), chain_.checkpoint(2)));
}

}  // namespace
}  // namespace deltawire::testing
