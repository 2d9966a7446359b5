// Replicas move forward along one history by themselves; they go elsewhere only when given the
// number of a version.

#include "deltawire/replica.h"
#include "deltawire/tensor_replica.h"
#include "replica/plan_pull.h"
#include "store/directory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

std::vector<TestTensor> small_model() {
  return {make_tensor("a", DType::kBF16, {50, 20}, 1), make_tensor("z", DType::kF32, {300}, 2)};
}

// A replica in files: each call is a new process.
class InFiles {
 public:
  InFiles(const TestChain& chain, fs::path folder) : chain_(chain), local_(std::move(folder)) {}

  Result<PullReport> pull(const PullGoal& goal = {}, const ReplicaOptions& how = {}) {
    ReplicaOptions options = how;
    options.limits.threads = 2;
    options.heartbeat = false;
    auto replica = Replica::open(chain_.store(), local_, options);
    if (!replica.ok()) return replica.status();
    return replica->pull(goal);
  }
  bool holds(uint64_t version, const std::vector<TestTensor>& tensors) const {
    if (read_replica_state(local_)->version != version) return false;
    const auto checkpoint = Checkpoint::open(local_ / "model.safetensors");
    return std::all_of(tensors.begin(), tensors.end(), [&](const TestTensor& tensor) {
      const Bytes own = checkpoint->find(tensor.name)->view.bytes;
      return std::equal(own.begin(), own.end(), tensor.bytes.begin(), tensor.bytes.end());
    });
  }
  void damage() const {  // found by its stamp
    std::ofstream(local_ / "model.safetensors", std::ios::in | std::ios::binary) << "x";
  }

 private:
  const TestChain& chain_;
  const fs::path local_;
};

// A replica in memory that lives as long as the test.
class InMemory {
 public:
  InMemory(const TestChain& chain, const fs::path&) : chain_(chain), tensors_(small_model()) {
    for (TestTensor& tensor : tensors_) {
      std::fill(tensor.bytes.begin(), tensor.bytes.end(), 0);
      live_.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
    }
  }
  Result<PullReport> pull(const PullGoal& goal = {}, const ReplicaOptions& how = {}) {
    if (!replica_ || !how.accept.run.empty() || how.accept.at_least != 0) {
      TensorReplicaOptions options{
          .accept = how.accept, .limits = {.threads = 2}, .heartbeat = false};
      auto opened = TensorReplica::open(chain_.store(), live_, options);
      if (!opened.ok()) return opened.status();
      replica_.emplace(std::move(*opened));
    }
    return replica_->pull(goal);
  }
  bool holds(uint64_t version, const std::vector<TestTensor>& tensors) const {
    if (!replica_ || replica_->version() != version) return false;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].bytes != tensors_[i].bytes) return false;
    }
    return true;
  }
  void damage() { tensors_[0].bytes[0] ^= 1; }

 private:
  const TestChain& chain_;
  std::vector<TestTensor> tensors_;
  std::vector<LiveTensor> live_;
  std::optional<TensorReplica> replica_;
};

template <class Kind>
class ReplicaForwardTest : public ::testing::Test {
 protected:
  ReplicaForwardTest()
      : chain_(std::make_shared<DirectoryStore>(folder_.path() / "store")),
        replica_(chain_, folder_.path() / "local") {}

  // Publishes the seed and versions up to `last`.
  void publish(uint64_t last, uint64_t seed = 10) {
    while (states_.size() <= last) {
      if (states_.empty()) {
        chain_.publish_full(tensors_);
      } else {
        change(&tensors_[0], 0.1, seed + states_.size());
        chain_.publish_delta(tensors_);
      }
      states_.push_back(tensors_);
    }
  }
  auto lose_after(uint64_t version) {
    states_.resize(version + 1);
    tensors_ = states_.back();
    return chain_.lose_after(version);
  }
  void expect(uint64_t version) { EXPECT_TRUE(replica_.holds(version, states_[version])); }
  static PullGoal until(uint64_t version) {
    PullGoal goal;
    goal.until = version;
    return goal;
  }
  static ReplicaOptions only_run(std::string run) { return {.accept = {.run = std::move(run)}}; }
  static ReplicaOptions at_least(uint64_t version) { return {.accept = {.at_least = version}}; }

  TempFolder folder_;
  TestChain chain_;
  Kind replica_;
  std::vector<TestTensor> tensors_ = small_model();
  std::vector<std::vector<TestTensor>> states_;  // by version
};

using Kinds = ::testing::Types<InFiles, InMemory>;
TYPED_TEST_SUITE(ReplicaForwardTest, Kinds);

TYPED_TEST(ReplicaForwardTest, DoesNotFollowAStoreThatLostVersions) {
  this->publish(5);
  ASSERT_TRUE(this->replica_.pull().ok());
  const auto held = this->states_[5];
  const auto lost = this->lose_after(2);
  EXPECT_FAILS(this->replica_.pull(), kNotFound,
               "its newest version is 2, but version 5 is held: the store has lost "
               "versions 3 to 5");
  EXPECT_TRUE(this->replica_.holds(5, held));
  // When the versions are back, the pull works again.
  this->chain_.put_back(lost);
  EXPECT_FALSE(must(this->replica_.pull()).changed);
}

TYPED_TEST(ReplicaForwardTest, GoesBackToAVersionGivenByNumber) {
  this->publish(5);
  ASSERT_TRUE(this->replica_.pull().ok());
  this->lose_after(2);
  ASSERT_TRUE(this->replica_.pull(2).ok());
  this->expect(2);
  // From there it continues by itself.
  this->publish(3, 70);
  EXPECT_FALSE(must(this->replica_.pull()).repaired);
  this->expect(3);
}

TYPED_TEST(ReplicaForwardTest, DamagedReplicaIsNotRolledBack) {
  this->publish(5);
  ASSERT_TRUE(this->replica_.pull().ok());
  this->lose_after(2);
  this->replica_.damage();
  EXPECT_FAILS(this->replica_.pull(), kNotFound, "has lost versions 3");
  ASSERT_TRUE(this->replica_.pull(2).ok());
  this->expect(2);
}

TYPED_TEST(ReplicaForwardTest, UntilNeverGoesBack) {
  this->publish(4);
  ASSERT_TRUE(this->replica_.pull(this->until(3)).ok());
  this->expect(3);
  const auto report = must(this->replica_.pull(this->until(1)));
  EXPECT_FALSE(report.changed);
  EXPECT_EQ(report.version, 3);
  ASSERT_TRUE(this->replica_.pull(this->until(9)).ok());
  this->expect(4);
}

// All manifests are missing, or the whole store: it may not be mounted.
TYPED_TEST(ReplicaForwardTest, ReportsAStoreThatBecameEmpty) {
  this->publish(2);
  ASSERT_TRUE(this->replica_.pull().ok());
  const fs::path store = this->folder_.path() / "store";
  fs::rename(store / "manifests", this->folder_.path() / "manifests");
  EXPECT_FAILS(this->replica_.pull(), kNotFound,
               "has no version at all, but version 2 is held: the store has lost "
               "versions 0 to 2");
  fs::rename(this->folder_.path() / "manifests", store / "manifests");
  fs::rename(store, this->folder_.path() / "away");
  EXPECT_EQ(this->replica_.pull().status().code(), Code::kNotFound);
  fs::remove_all(store);
  fs::rename(this->folder_.path() / "away", store);
  ASSERT_TRUE(this->replica_.pull().ok());
  this->expect(2);
}

TYPED_TEST(ReplicaForwardTest, DoesNotSwitchToAnotherHistory) {
  this->publish(4);
  ASSERT_TRUE(this->replica_.pull().ok());
  const auto held = this->states_[4];
  this->lose_after(2);
  for (const uint64_t last : {4, 5, 7}) {  // the held number, the next one, further on
    this->publish(last, 70);
    EXPECT_FAILS(this->replica_.pull(), kCorruption, "another history");
    EXPECT_TRUE(this->replica_.holds(4, held));
  }
  // Neither through a repair nor when the held version's own record is gone.
  this->replica_.damage();
  EXPECT_FAILS(this->replica_.pull(), kCorruption, "another history");
  ASSERT_TRUE(this->chain_.store()->remove(manifest_name(4)).ok());
  EXPECT_FAILS(this->replica_.pull(), kCorruption, "another history");
  // It may be asked for by number, but version 7 builds on version 4, which is gone.
  const auto report = this->replica_.pull(7);
  ASSERT_FALSE(report.ok()) << "version 4 is gone, and 7 builds upon it";
}

TYPED_TEST(ReplicaForwardTest, SwitchesToAnotherHistoryByNumber) {
  this->publish(4);
  ASSERT_TRUE(this->replica_.pull().ok());
  this->lose_after(2);
  this->publish(6, 70);
  const auto report = must(this->replica_.pull(5));
  EXPECT_TRUE(report.repaired);
  EXPECT_TRUE(contains(report.repair_reason, "another history"));
  this->expect(5);
  ASSERT_TRUE(this->replica_.pull().ok());
  this->expect(6);
}

TYPED_TEST(ReplicaForwardTest, AcceptsOnlyTheRequestedRun) {
  this->publish(1);
  EXPECT_FAILS(this->replica_.pull({}, this->only_run(std::string(32, 'a'))), kBaseMismatch,
               "but the requested run is aaaa");
  EXPECT_FAILS(this->replica_.pull({}, this->only_run("seven")), kInvalidArgument, "32 hex digits");
  ASSERT_TRUE(this->replica_.pull({}, this->only_run(this->chain_.chain.run())).ok());
  this->expect(1);
}

TYPED_TEST(ReplicaForwardTest, RefusesVersionsBelowAtLeast) {
  this->publish(2);
  const ReplicaOptions three = this->at_least(3);
  EXPECT_FAILS(this->replica_.pull({}, three), kNotFound,
               "its newest version is 2, but the oldest accepted version is 3");
  EXPECT_EQ(this->replica_.pull(2, three).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(this->replica_.pull(this->until(2), three).status().code(), Code::kInvalidArgument);
  this->publish(3);
  ASSERT_TRUE(this->replica_.pull({}, three).ok());
  this->expect(3);
}

}  // namespace
}  // namespace deltawire::testing
