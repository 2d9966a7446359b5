// kill -9 at every sync point of a pull: after the next open() the folder holds the old or the new
// version and records which; nothing is left that breaks a later pull.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sync_point.h"
#include "deltawire/replica.h"
#include "store/directory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

ReplicaOptions options(bool copy_on_write) {
  ReplicaOptions made{.limits = {.threads = 2}, .heartbeat = false};
  if (copy_on_write) made.copy_on_write = CopyOnWrite{.keep = 1};
  return made;
}

// The code of the killed process: a test of this program, run by name with its arguments in the
// environment.
TEST(ReplicaCrashChild, DISABLED_Pulls) {
  const auto argument = [](const char* name) {
    const char* text = ::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  ASSERT_FALSE(argument("REPLICA_STORE").empty()) << "started by ReplicaCrashTest only";
  auto replica =
      must(Replica::open(std::make_shared<DirectoryStore>(argument("REPLICA_STORE")),
                         argument("REPLICA_LOCAL"), options(argument("REPLICA_COW") == "1")));
  must(replica.pull());
}

class ReplicaCrashTest : public ::testing::Test {
 protected:
  ReplicaCrashTest() : chain_(std::make_shared<DirectoryStore>(folder_.path() / "store")) {
    tensors_ = {make_tensor("a", DType::kBF16, {50, 20}, 1),
                make_tensor("b", DType::kF32, {300}, 2), make_tensor("c", DType::kBF16, {400}, 3),
                make_tensor("d", DType::kBF16, {2, 90}, 4)};
  }

  void next_delta(size_t num_files = 2) {
    for (TestTensor& tensor : tensors_) change(&tensor, 0.1, seed_++);
    chain_.publish_delta(tensors_, "auto", num_files);
  }
  fs::path local() const { return folder_.path() / "local"; }

  // Returns the wait status of a pull in a process that is killed at point `crash_at` (0: never).
  int pull_in_child(unsigned long crash_at, bool copy_on_write) const {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("REPLICA_STORE", (folder_.path() / "store").c_str(), 1);
      ::setenv("REPLICA_LOCAL", local().c_str(), 1);
      ::setenv("REPLICA_COW", copy_on_write ? "1" : "0", 1);
      ::setenv("DELTAWIRE_CRASH_AT", std::to_string(crash_at).c_str(), 1);
      ::setenv("DELTAWIRE_CRASH_LOG", log().c_str(), 1);
      ::unsetenv("GTEST_OUTPUT");
      ::unsetenv("GTEST_TOTAL_SHARDS");  // its one test is in every share
      ::unsetenv("GTEST_SHARD_INDEX");
      if (::freopen((folder_.path() / "child.log").c_str(), "w", stdout) == nullptr) ::_exit(3);
      ::execl("/proc/self/exe", "replica_tests", "--gtest_filter=ReplicaCrashChild.DISABLED_Pulls",
              "--gtest_also_run_disabled_tests", nullptr);
      ::_exit(3);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }
  fs::path log() const { return folder_.path() / "points.log"; }
  std::string child_output() const { return read_file(folder_.path() / "child.log"); }

  // `before` prepares the folder that the killed pull starts with; `from` is the version that it
  // then holds.
  void crash_everywhere(bool copy_on_write, std::optional<uint64_t> from,
                        const std::function<void()>& before) {
#if !DELTAWIRE_FAULTS
    GTEST_SKIP() << "this build has no sync points (DELTAWIRE_FAULTS=OFF)";
#endif
    before();
    const int whole = pull_in_child(0, copy_on_write);
    ASSERT_TRUE(WIFEXITED(whole) && WEXITSTATUS(whole) == 0) << child_output();
    const std::string points = read_file(log());
    const size_t count = size_t(std::count(points.begin(), points.end(), '\n'));
    ASSERT_GE(count, 15) << points;
    for (size_t point = 1; point <= count; ++point) {
      SCOPED_TRACE("killed at point " + std::to_string(point) + " of\n" + points);
      fs::remove_all(local());
      before();
      const int status = pull_in_child(point, copy_on_write);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << child_output();
      expect_recovery(copy_on_write, from);
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }

  void expect_recovery(bool copy_on_write, std::optional<uint64_t> from) {
    auto replica = must(Replica::open(chain_.store(), local(), options(copy_on_write)));
    if (replica.state() && replica.state()->patching_to) {  // in motion, and it says so
      EXPECT_EQ(replica.state()->patching_to, chain_.head());
    } else if (replica.state()) {
      const uint64_t version = replica.state()->version;
      EXPECT_TRUE(version == chain_.head() || version == from) << version;
      EXPECT_TRUE(
          is_identical(copy_on_write ? local() / "current" : local(), chain_.checkpoint(version)));
    } else {
      EXPECT_FALSE(from);
    }
    const auto report = must(replica.pull());
    EXPECT_FALSE(report.repaired) << report.repair_reason;
    EXPECT_TRUE(is_identical(copy_on_write ? local() / "current" : local(),
                             chain_.checkpoint(chain_.head())));
    expect_no_leftovers();
  }

  void expect_no_leftovers() const {
    for (const auto& item : fs::directory_iterator(local() / ".deltawire")) {
      const std::string name = item.path().filename().string();
      EXPECT_TRUE(name == "lock" || name == "state.json") << name;
    }
    for (const auto& item : fs::recursive_directory_iterator(local())) {
      EXPECT_FALSE(contains(item.path().string(), ".tmp")) << item.path();
      EXPECT_FALSE(contains(item.path().string(), ".new")) << item.path();
    }
  }

  void pull(std::optional<uint64_t> version, bool copy_on_write = false) {
    auto replica = must(Replica::open(chain_.store(), local(), options(copy_on_write)));
    must(replica.pull(version));
  }

  TempFolder folder_;
  TestChain chain_;
  std::vector<TestTensor> tensors_;
  uint64_t seed_ = 10;
};

TEST_F(ReplicaCrashTest, FirstPull) {
  chain_.publish_full(tensors_, 2);
  next_delta();
  crash_everywhere(false, {}, [] {});
}

TEST_F(ReplicaCrashTest, PatchInPlace) {
  chain_.publish_full(tensors_, 2);
  next_delta();
  next_delta();
  crash_everywhere(false, 0, [&] { pull(0); });
}

TEST_F(ReplicaCrashTest, ReplacedFiles) {
  chain_.publish_full(tensors_, 3);
  for (TestTensor& tensor : tensors_) change(&tensor, 0.1, seed_++);
  chain_.publish_full(tensors_, 2);
  crash_everywhere(false, 0, [&] { pull(0); });
}

TEST_F(ReplicaCrashTest, AddedAndRemovedTensors) {
  chain_.publish_full(tensors_, 2);
  tensors_.erase(tensors_.begin());
  tensors_.push_back(make_tensor("e", DType::kBF16, {70}, 9));
  next_delta();
  crash_everywhere(false, 0, [&] { pull(0); });
}

TEST_F(ReplicaCrashTest, CopyOnWrite) {
  chain_.publish_full(tensors_, 2);
  next_delta();
  next_delta();
  next_delta();
  crash_everywhere(true, 2, [&] {
    pull(0, true);
    pull(1, true);
    pull(2, true);
  });
}

// The process that recovers may be killed, too.
TEST_F(ReplicaCrashTest, RecoveryItself) {
#if !DELTAWIRE_FAULTS
  GTEST_SKIP() << "this build has no sync points (DELTAWIRE_FAULTS=OFF)";
#endif
  chain_.publish_full(tensors_, 2);
  next_delta();
  pull(0);
  ASSERT_TRUE(WIFEXITED(pull_in_child(0, false)));
  const std::string points = read_file(log());
  // Killed when half of the tensors are patched.
  unsigned long half_way = 0;
  size_t patched = 0;
  for (size_t at = 0; at < points.size(); at = points.find('\n', at) + 1) {
    ++half_way;
    const std::string line = points.substr(at, points.find('\n', at) - at);
    if (line.ends_with("tensor patched") && ++patched == 2) break;
  }
  ASSERT_EQ(patched, 2) << points;
  for (unsigned long point = 1;; ++point) {
    SCOPED_TRACE("recovery killed at point " + std::to_string(point));
    fs::remove_all(local());
    pull(0);
    ASSERT_TRUE(WIFSIGNALED(pull_in_child(half_way, false)));
    const int status = pull_in_child(point, false);
    expect_recovery(false, 0);
    if (WIFEXITED(status)) {
      EXPECT_GT(point, 5);
      break;
    }
    if (HasFatalFailure() || HasNonfatalFailure()) break;
  }
}

}  // namespace
}  // namespace deltawire::testing
