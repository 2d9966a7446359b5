// Only a verified version is recorded, whatever happens to the files between the patch and the
// record; and only commit() writes files that somebody may be reading.
#include "deltawire/replica.h"

#include "chain/plan.h"
#include "replica/local_state.h"
#include "replica/memory_state.h"
#include "store/directory_store.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

// How a step changes the folder.
enum class Step { kPatch, kFiles, kSwitch };

class ReplicaSettleTest : public ::testing::TestWithParam<Step> {
 protected:
  ReplicaSettleTest() : chain_(std::make_shared<DirectoryStore>(folder_.path() / "store")) {
    tensors_ = {make_tensor("a", DType::kBF16, {50, 20}, 1),
                make_tensor("still", DType::kF32, {300}, 2),
                make_tensor("z", DType::kBF16, {400}, 3)};
    chain_.publish_full(tensors_);
    if (GetParam() != Step::kFiles) {  // that one starts from nothing
      must(open(local()).value().pull());
      change(&tensors_[0], 0.1, 10);
      chain_.publish_delta(tensors_);
    }
  }
  fs::path local() const { return folder_.path() / "local"; }
  Result<Replica> open(const fs::path& folder, bool repair = true) {
    ReplicaOptions options{.limits = {.threads = 2}, .repair = repair, .heartbeat = false};
    if (GetParam() == Step::kSwitch) options.copy_on_write = CopyOnWrite{};
    return Replica::open(chain_.store(), folder, options);
  }
  // Commits the newest version without settling it.
  Replica committed() {
    Replica replica = must(open(local()));
    must(replica.prepare());
    must(replica.commit());
    return replica;
  }
  fs::path checkpoint(const fs::path& folder, uint64_t version) const {
    if (GetParam() != Step::kSwitch) return folder;
    return folder / ("v000000000" + std::to_string(version));
  }
  // The weights after a step to the newest version.
  fs::path weights(const fs::path& folder) const {
    return checkpoint(folder, chain_.head()) / "model.safetensors";
  }
  // Flips a bit of the tensor that no version changes.
  static void edit(const fs::path& file) { edit_tensor(file, "still"); }
  void expect_head(const fs::path& folder) {
    EXPECT_EQ(read_replica_state(folder)->version, chain_.head());
    EXPECT_FALSE(read_replica_state(folder)->patching_to);
    EXPECT_TRUE(is_identical(checkpoint(folder, chain_.head()), chain_.checkpoint(chain_.head())));
  }
  static bool was_read(const PullReport& report) {
    return std::any_of(report.phases.begin(), report.phases.end(),
                       [](const Phase& phase) { return std::string(phase.name) == "check"; });
  }

  TempFolder folder_;
  TestChain chain_;
  std::vector<TestTensor> tensors_;
};

std::string name_of(const ::testing::TestParamInfo<Step>& step) {
  constexpr const char* kNames[] = {"Patch", "Files", "Switch"};
  return kNames[size_t(step.param)];
}

INSTANTIATE_TEST_SUITE_P(Steps, ReplicaSettleTest,
                         ::testing::Values(Step::kPatch, Step::kFiles, Step::kSwitch), name_of);

TEST_P(ReplicaSettleTest, DoesNotRecordAnEditAfterTheCommit) {
  {
    auto replica = committed();
    edit(weights(local()));
    EXPECT_FAILS(replica.settle(), kBaseMismatch, "model.safetensors", "\"still\"",
                 "then the files were changed");
    EXPECT_FALSE(replica.state() && replica.state()->version == chain_.head());
    // The next step repairs it.
    EXPECT_TRUE(must(replica.pull()).repaired);
  }
  expect_head(local());
}

TEST_P(ReplicaSettleTest, NextProcessDetectsAnEditAfterTheCommit) {
  {
    auto replica = committed();
    edit(weights(local()));
  }  // settles, and cannot
  EXPECT_TRUE(must(open(local())->pull()).repaired);
  expect_head(local());
}

TEST_P(ReplicaSettleTest, VerifiesAndRecordsAFileThatWasTouched) {
  auto replica = open(local()).value();
  ASSERT_TRUE(replica.prepare().ok());
  auto report = must(replica.commit());
  fs::last_write_time(weights(local()), fs::file_time_type::clock::now() - std::chrono::hours(1));
  must(replica.settle(&report));
  EXPECT_TRUE(was_read(report));
  expect_head(local());
  // It is not read again.
  const auto again = must(replica.pull());
  EXPECT_FALSE(again.changed);
  EXPECT_FALSE(again.repaired);
}

TEST_P(ReplicaSettleTest, ReportsAFileRemovedAfterTheCommit) {
  auto replica = committed();
  fs::remove(weights(local()));
  EXPECT_EQ(replica.settle().code(), Code::kBaseMismatch);
  ASSERT_TRUE(replica.pull().ok());
  expect_head(local());
}

// A process was killed before settling, and the file was edited before the next one starts.
TEST_P(ReplicaSettleTest, RecoveryVerifiesWhatItRecords) {
  for (const bool edited : {false, true}) {
    const fs::path killed = folder_.path() / (edited ? "edited" : "good");
    {
      auto replica = committed();
      fs::rename(local(), killed);  // what it does now does not reach the folder any more
    }
    if (edited) edit(weights(killed));
    const auto report = must(open(killed)->pull());
    EXPECT_TRUE(report.recovered);
    EXPECT_EQ(report.repaired, edited);
    expect_head(killed);
    if (GetParam() == Step::kFiles) continue;
    fs::copy(killed, local(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    change(&tensors_[0], 0.1, 20);
    chain_.publish_delta(tensors_);
  }
}

TEST_P(ReplicaSettleTest, FailedCommitAndPrepareWriteNothing) {
  auto replica = open(local()).value();
  const fs::path state = local() / ".deltawire/state.json";
  if (!fs::exists(state)) return;  // nothing is served yet
  ASSERT_TRUE(replica.prepare().ok());
  // The commit fails while the journal is committed, before any byte of the weights is written.
  fs::rename(state, folder_.path() / "aside");
  fs::create_directories(state / "in the way");
  ASSERT_EQ(replica.commit().status().code(), Code::kIo);
  fs::remove_all(state);
  fs::rename(folder_.path() / "aside", state);
  const std::string before = read_file(checkpoint(local(), 0) / "model.safetensors");
  const auto prepared = must(replica.prepare());
  EXPECT_TRUE(prepared.recovered);
  EXPECT_EQ(prepared.version, 1);
  EXPECT_EQ(read_file(checkpoint(local(), 0) / "model.safetensors"), before);
  if (GetParam() == Step::kSwitch) {
    EXPECT_EQ(fs::read_symlink(local() / "current"), "v0000000000");
  }
  ASSERT_TRUE(replica.commit().ok());
  ASSERT_TRUE(replica.settle().ok());
  expect_head(local());
}

TEST_P(ReplicaSettleTest, RelocksAFolderThatWasRemoved) {
  auto replica = open(local()).value();
  ASSERT_TRUE(replica.pull().ok());
  fs::remove_all(local());
  EXPECT_FALSE(must(replica.pull()).from);
  expect_head(local());
  EXPECT_EQ(open(local()).status().code(), Code::kConflict);
}

TEST_P(ReplicaSettleTest, ReportsAFolderRemovedAfterPrepareOrCommit) {
  auto replica = open(local()).value();
  ASSERT_TRUE(replica.prepare().ok());
  fs::remove_all(local());
  EXPECT_FAILS(replica.commit(), kIo, "removed or replaced");
  ASSERT_TRUE(replica.prepare().ok());
  ASSERT_TRUE(replica.commit().ok());
  fs::remove_all(local());
  EXPECT_FAILS(replica.settle(), kIo, "removed or replaced");
  // Another replica has taken the folder.
  auto other = open(local()).value();
  EXPECT_EQ(replica.pull().status().code(), Code::kConflict);
  ASSERT_TRUE(other.pull().ok());
  expect_head(local());
}

TEST_P(ReplicaSettleTest, MissingStateIsRecoveredFromTheFiles) {
  ASSERT_TRUE(open(local())->pull().ok());
  fs::remove(local() / ".deltawire/state.json");
  const auto report = must(open(local())->pull());
  EXPECT_FALSE(report.changed);
  EXPECT_TRUE(report.repaired);
  EXPECT_TRUE(contains(report.repair_reason, "is missing"));
  expect_head(local());
}

TEST_P(ReplicaSettleTest, RefusesUnknownFilesWithoutAState) {
  ASSERT_TRUE(open(local())->pull().ok());
  fs::remove(local() / ".deltawire/state.json");
  edit(weights(local()));
  const std::string before = read_file(weights(local()));
  for (const bool repair : {true, false}) {
    EXPECT_FAILS(open(local(), repair)->pull(), kInvalidArgument, "state.json", "move them away");
  }
  EXPECT_EQ(read_file(weights(local())), before);
}

class CurrentLinkTest : public ReplicaSettleTest {
 protected:
  CurrentLinkTest() { EXPECT_TRUE(open(local())->pull().ok()); }
  fs::path link() const { return local() / "current"; }
};

INSTANTIATE_TEST_SUITE_P(Steps, CurrentLinkTest, ::testing::Values(Step::kSwitch), name_of);

TEST_P(CurrentLinkTest, MovedOrRemovedLinkIsRestored) {
  for (const std::string target : {"", "v0000000000", "nowhere"}) {
    fs::remove(link());
    if (!target.empty()) fs::create_symlink(target, link());
    EXPECT_FAILS(open(local(), false)->pull(), kBaseMismatch, "current");
    auto replica = open(local()).value();
    const auto prepared = must(replica.prepare());
    EXPECT_TRUE(prepared.changed);  // engines may have followed the link
    EXPECT_TRUE(prepared.repaired);
    EXPECT_TRUE(contains(prepared.repair_reason, "current"));
    std::error_code error;
    EXPECT_EQ(fs::read_symlink(link(), error), target);  // not yet
    auto report = must(replica.commit());
    ASSERT_TRUE(replica.settle(&report).ok());
    EXPECT_FALSE(was_read(report));
    EXPECT_EQ(fs::read_symlink(link()), "v0000000001");
    EXPECT_FALSE(replica.pull()->changed);
    expect_head(local());
  }
}

TEST_P(CurrentLinkTest, PullOfANewVersionRestoresTheLink) {
  fs::remove(link());
  change(&tensors_[0], 0.1, 20);
  chain_.publish_delta(tensors_);
  EXPECT_TRUE(must(open(local())->pull()).repaired);
  EXPECT_EQ(fs::read_symlink(link()), "v0000000002");
}

TEST_P(CurrentLinkTest, DoesNotReplaceAFolderOfThatName) {
  fs::remove(link());
  fs::create_directories(link() / "kept");
  EXPECT_FAILS(open(local())->pull(), kInvalidArgument, "current", "not a link");
  EXPECT_TRUE(fs::exists(link() / "kept"));
}

TEST_P(CurrentLinkTest, RestoresMissingStateAndLink) {
  fs::remove(link());
  fs::remove(local() / ".deltawire/state.json");
  must(open(local())->pull());
  EXPECT_EQ(fs::read_symlink(link()), "v0000000001");
  expect_head(local());
}

// ---- Versions side by side: readers of the old one never see bytes of the new one.

class CopyOnWriteTest : public ::testing::Test {
 protected:
  CopyOnWriteTest() : chain_(std::make_shared<MemoryStore>("cow")) {
    tensors_ = {make_tensor("a", DType::kBF16, {50, 20}, 1),
                make_tensor("b", DType::kF32, {300}, 2)};
    chain_.publish_full(tensors_, 2);
    for (uint64_t i = 0; i < 4; ++i) {
      change(&tensors_[0], 0.1, 10 + i);
      chain_.publish_delta(tensors_, "auto", 2);
    }
    options_.heartbeat = false;
    options_.copy_on_write = CopyOnWrite{.keep = 1};
  }
  fs::path local() const { return folder_.path() / "local"; }
  Result<PullReport> pull(std::optional<uint64_t> version = {}) {
    auto replica = Replica::open(chain_.store(), local(), options_);
    if (!replica.ok()) return replica.status();
    return replica->pull(version);
  }

  TempFolder folder_;
  TestChain chain_;
  std::vector<TestTensor> tensors_;
  ReplicaOptions options_;
};

TEST_F(CopyOnWriteTest, EveryVersionHasItsFolder) {
  for (uint64_t version = 0; version <= 4; ++version) {
    const auto report = must(pull(version));
    EXPECT_EQ(report.path, local() / ("v000000000" + std::to_string(version)));
    EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(version)));
    EXPECT_EQ(fs::read_symlink(local() / "current"), report.path.filename());
    EXPECT_EQ(read_file(local() / "current/config.json"), "{}\n");
  }
  EXPECT_TRUE(is_identical(local() / "v0000000003", chain_.checkpoint(3)));
  EXPECT_FALSE(fs::exists(local() / "v0000000002"));
}

TEST_F(CopyOnWriteTest, ReaderKeepsTheVersionItOpened) {
  ASSERT_TRUE(pull(0).ok());
  const auto reader = must(Checkpoint::open(local() / "current"));
  const std::string before = as_string(reader.find("a")->view.bytes);
  ASSERT_TRUE(pull(1).ok());
  ASSERT_TRUE(pull(4).ok());
  EXPECT_FALSE(fs::exists(local() / "v0000000000"));
  EXPECT_EQ(as_string(reader.find("a")->view.bytes), before);
}

TEST_F(CopyOnWriteTest, PrepareDoesNotMoveTheLink) {
  auto replica = must(Replica::open(chain_.store(), local(), options_));
  ASSERT_TRUE(replica.pull(1).ok());
  ASSERT_TRUE(replica.prepare().ok());
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(1)));
  ASSERT_TRUE(replica.commit().ok());
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(4)));
}

TEST_F(CopyOnWriteTest, ReplacesADamagedVersionUnderItsName) {
  ASSERT_TRUE(pull().ok());
  std::ofstream(local() / "current/a-00001.safetensors") << "damage";
  EXPECT_TRUE(must(pull()).repaired);
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(4)));
}

TEST_F(CopyOnWriteTest, GoesBackToAVersionStillOnDisk) {
  ASSERT_TRUE(pull(3).ok());
  ASSERT_TRUE(pull(4).ok());
  must(pull(3));
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(3)));
  EXPECT_EQ(fs::read_symlink(local() / "current"), "v0000000003");
}

TEST_F(CopyOnWriteTest, HandlesAddedAndRemovedTensors) {
  ASSERT_TRUE(pull().ok());
  tensors_.erase(tensors_.begin());
  tensors_.push_back(make_tensor("c", DType::kBF16, {70}, 9));
  chain_.publish_delta(tensors_, "auto", 2);
  EXPECT_FALSE(must(pull()).repaired);
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(5)));
  EXPECT_TRUE(is_identical(local() / "v0000000004", chain_.checkpoint(4)));
}

// ---- A version fetched into memory uses the same path search as replicas.

// Versions 0 to 2, and a merged delta from 0 to 2 beside the two deltas.
class MemoryStateTest : public ::testing::Test {
 protected:
  std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
  std::vector<TestTensor> tensors = {make_tensor("a", DType::kBF16, {64, 32}, 1),
                                     make_tensor("b", DType::kF32, {40}, 2)};

  void SetUp() override {
    TestChain chain(store);
    chain.publish_full(tensors);
    for (uint64_t version = 1; version <= 2; ++version) {
      for (TestTensor& tensor : tensors) change(&tensor, 0.1, version);
      chain.publish_delta(tensors);
    }
    chain.add_merged(0, 2);
  }

  // The first part after the seed on the cheapest path to version 2 that avoids `avoid`.
  std::string next_part(const std::set<std::string>& avoid = {}) {
    const auto chain = Chain::open(store, {});
    const auto plan = must(plan_catch_up(*chain, {}, 2, nullptr, avoid));
    return plan.hops.at(1).parts.at(0).name;
  }
  Result<MemoryState> fetch() { return fetch_state(*Chain::open(store, {}), 2, nullptr, {}); }

  void expect_version_2(const Result<MemoryState>& state) {
    ASSERT_TRUE(state.ok()) << state.status().to_string();
    ASSERT_EQ(state->size(), tensors.size());
    for (const TestTensor& tensor : tensors) {
      const Bytes got = state->at(tensor.name).bytes;
      EXPECT_TRUE(std::equal(got.begin(), got.end(), tensor.bytes.begin(), tensor.bytes.end()))
          << tensor.name;
    }
  }
};

TEST_F(MemoryStateTest, SkipsADamagedPart) {
  expect_version_2(fetch());
  std::string bytes = store->get(next_part(), UINT64_MAX).value();
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(store->put(next_part(), MemoryBody(bytes)).ok());
  expect_version_2(fetch());
}

TEST_F(MemoryStateTest, SkipsAMissingPart) {
  ASSERT_TRUE(store->remove(next_part()).ok());
  expect_version_2(fetch());
}

TEST_F(MemoryStateTest, ReportsTheFirstBadPartWithoutAnotherPath) {
  const std::string first = next_part(), second = next_part({first});
  ASSERT_NE(first, second);
  ASSERT_TRUE(store->remove(first).ok());
  ASSERT_TRUE(store->remove(second).ok());
  EXPECT_FAILS(fetch(), kNotFound, first);
}

}  // namespace
}  // namespace deltawire::testing
