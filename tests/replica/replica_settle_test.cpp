// What is recorded as a version was proven to be one, whatever happens to the files between the
// patch and the record; and nothing but commit() writes files that somebody may be reading.

#include "deltawire/replica.h"
#include "replica/local_state.h"
#include "store/directory_store.h"
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
  fs::path checkpoint(const fs::path& folder, uint64_t version) const {
    if (GetParam() != Step::kSwitch) return folder;
    return folder / ("v000000000" + std::to_string(version));
  }
  // The weights after a step to the newest version.
  fs::path weights(const fs::path& folder) const {
    return checkpoint(folder, chain_.head()) / "model.safetensors";
  }
  // A bit of the tensor that no version changes.
  static void edit(const fs::path& file) {
    uint64_t offset = 0;
    {
      const auto opened = Checkpoint::open(file);
      offset = opened->find("still")->offset;
    }
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekg(std::streamoff(offset));
    const int byte = out.get();
    out.seekp(std::streamoff(offset));
    out.put(char(byte ^ 1));
  }
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

TEST_P(ReplicaSettleTest, AnEditAfterTheCommitIsNotRecorded) {
  {
    auto replica = open(local()).value();
    ASSERT_TRUE(replica.prepare().ok());
    ASSERT_TRUE(replica.commit().ok());
    edit(weights(local()));
    EXPECT_FAILS(replica.settle(), Code::kBaseMismatch, "model.safetensors", "\"still\"",
                 "then the files were changed");
    EXPECT_FALSE(replica.state() && replica.state()->version == chain_.head());
    // The next step mends it.
    const auto report = must(replica.pull());
    EXPECT_TRUE(report.repaired);
  }
  expect_head(local());
}

TEST_P(ReplicaSettleTest, TheNextProcessFindsItToo) {
  {
    auto replica = open(local()).value();
    ASSERT_TRUE(replica.prepare().ok());
    ASSERT_TRUE(replica.commit().ok());
    edit(weights(local()));
  }  // settles, and cannot
  const auto report = must(open(local())->pull());
  EXPECT_TRUE(report.repaired);
  expect_head(local());
}

TEST_P(ReplicaSettleTest, AFileThatWasOnlyTouchedIsReadAndRecorded) {
  auto replica = open(local()).value();
  ASSERT_TRUE(replica.prepare().ok());
  auto report = must(replica.commit());
  fs::last_write_time(weights(local()), fs::file_time_type::clock::now() - std::chrono::hours(1));
  must(replica.settle(&report));
  EXPECT_TRUE(was_read(report));
  expect_head(local());
  // And is not read again.
  const auto again = must(replica.pull());
  EXPECT_FALSE(again.changed);
  EXPECT_FALSE(again.repaired);
}

TEST_P(ReplicaSettleTest, AFileThatIsGoneAfterTheCommit) {
  auto replica = open(local()).value();
  ASSERT_TRUE(replica.prepare().ok());
  ASSERT_TRUE(replica.commit().ok());
  fs::remove(weights(local()));
  EXPECT_EQ(replica.settle().code(), Code::kBaseMismatch);
  ASSERT_TRUE(replica.pull().ok());
  expect_head(local());
}

// What a process that was killed before it settled leaves behind, edited before the next one comes.
TEST_P(ReplicaSettleTest, ARecoveryProvesWhatItRecords) {
  for (const bool edited : {false, true}) {
    const fs::path killed = folder_.path() / (edited ? "edited" : "good");
    {
      auto replica = open(local()).value();
      ASSERT_TRUE(replica.prepare().ok());
      ASSERT_TRUE(replica.commit().ok());
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

TEST_P(ReplicaSettleTest, OnlyCommitWritesAlsoAfterACommitThatFailed) {
  auto replica = open(local()).value();
  const fs::path state = local() / ".deltawire/state.json";
  if (!fs::exists(state)) return;  // nothing is served yet
  ASSERT_TRUE(replica.prepare().ok());
  // It fails when the journal is committed, and before a byte is written.
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

TEST_P(ReplicaSettleTest, AFolderThatIsRemovedIsLockedAnew) {
  auto replica = open(local()).value();
  ASSERT_TRUE(replica.pull().ok());
  fs::remove_all(local());
  const auto report = must(replica.pull());
  EXPECT_FALSE(report.from);
  expect_head(local());
  EXPECT_EQ(open(local()).status().code(), Code::kConflict);
}

TEST_P(ReplicaSettleTest, AFolderThatIsRemovedAfterPrepareOrCommit) {
  auto replica = open(local()).value();
  ASSERT_TRUE(replica.prepare().ok());
  fs::remove_all(local());
  EXPECT_FAILS(replica.commit(), Code::kIo, "removed or replaced");
  ASSERT_TRUE(replica.prepare().ok());
  ASSERT_TRUE(replica.commit().ok());
  fs::remove_all(local());
  EXPECT_FAILS(replica.settle(), Code::kIo, "removed or replaced");
  // Another one has moved in.
  auto other = open(local()).value();
  EXPECT_EQ(replica.pull().status().code(), Code::kConflict);
  ASSERT_TRUE(other.pull().ok());
  expect_head(local());
}

TEST_P(ReplicaSettleTest, AStateThatIsGoneIsFoundOutFromTheFiles) {
  ASSERT_TRUE(open(local())->pull().ok());
  fs::remove(local() / ".deltawire/state.json");
  const auto report = must(open(local())->pull());
  EXPECT_FALSE(report.changed);
  EXPECT_TRUE(report.repaired);
  EXPECT_TRUE(contains(report.repair_reason, "is not there"));
  expect_head(local());
}

TEST_P(ReplicaSettleTest, FilesOfNoVersionAreNotOverwrittenWithoutAState) {
  ASSERT_TRUE(open(local())->pull().ok());
  fs::remove(local() / ".deltawire/state.json");
  edit(weights(local()));
  const std::string before = read_file(weights(local()));
  for (const bool repair : {true, false}) {
    EXPECT_FAILS(open(local(), repair)->pull(), Code::kInvalidArgument, "state.json",
                 "move them away");
  }
  EXPECT_EQ(read_file(weights(local())), before);
}

class CurrentLinkTest : public ReplicaSettleTest {
 protected:
  CurrentLinkTest() { EXPECT_TRUE(open(local())->pull().ok()); }
  fs::path link() const { return local() / "current"; }
};

INSTANTIATE_TEST_SUITE_P(Steps, CurrentLinkTest, ::testing::Values(Step::kSwitch), name_of);

TEST_P(CurrentLinkTest, ALinkThatWasMovedOrRemovedIsMended) {
  for (const std::string target : {"", "v0000000000", "nowhere"}) {
    fs::remove(link());
    if (!target.empty()) fs::create_symlink(target, link());
    EXPECT_FAILS(open(local(), false)->pull(), Code::kBaseMismatch, "current");
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

TEST_P(CurrentLinkTest, ANewVersionMendsItToo) {
  fs::remove(link());
  change(&tensors_[0], 0.1, 20);
  chain_.publish_delta(tensors_);
  const auto report = must(open(local())->pull());
  EXPECT_TRUE(report.repaired);
  EXPECT_EQ(fs::read_symlink(link()), "v0000000002");
}

TEST_P(CurrentLinkTest, AFolderInItsPlaceIsLeftAlone) {
  fs::remove(link());
  fs::create_directories(link() / "kept");
  EXPECT_FAILS(open(local())->pull(), Code::kInvalidArgument, "current", "not a link");
  EXPECT_TRUE(fs::exists(link() / "kept"));
}

TEST_P(CurrentLinkTest, AStateThatIsGoneTogetherWithTheLink) {
  fs::remove(link());
  fs::remove(local() / ".deltawire/state.json");
  must(open(local())->pull());
  EXPECT_EQ(fs::read_symlink(link()), "v0000000001");
  expect_head(local());
}

}  // namespace
}  // namespace deltawire::testing
