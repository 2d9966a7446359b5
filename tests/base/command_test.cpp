#include "base/command.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST(Command, PassesTheEnvironmentAndReplacesNames) {
  const TempFolder folder;
  const std::string out = (folder.path() / "out").string();
  ::setenv("DELTAWIRE_TEST_OLD", "kept", 1);
  ::setenv("DELTAWIRE_TEST_NEW", "lost", 1);
  must(run_command("env | grep DELTAWIRE_TEST_ | sort > " + out,
                   {{{"DELTAWIRE_TEST_NEW", "a b\"$"}}, 60}));
  EXPECT_EQ(read_file(out), "DELTAWIRE_TEST_NEW=a b\"$\nDELTAWIRE_TEST_OLD=kept\n");
}

TEST(Command, HasAnEmptyInputAndPrintsToStderr) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const Status status = run_command("cat; echo printed", {});
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "printed\n");
}

TEST(Command, CapturesStdout) {
  std::string output;
  CommandOptions options{.output = &output};
  EXPECT_TRUE(run_command("echo one; echo two", options).ok());
  EXPECT_EQ(output, "one\ntwo\n");
  output.clear();
  EXPECT_FAILS(run_command("echo so far; exit 4", options), kConflict, "status 4");
  EXPECT_EQ(output, "so far\n");
  // Output beyond the limit is dropped; the command still runs to its end.
  output.clear();
  EXPECT_TRUE(run_command("head -c 300000 /dev/zero", options).ok());
  EXPECT_EQ(output.size(), CommandOptions::kMaxOutputBytes);
}

TEST(Command, ReportsExitStatusAndSignal) {
  EXPECT_FAILS(run_command("exit 7", {}), kConflict, "status 7");
  EXPECT_FAILS(run_command("kill -9 $$", {}), kConflict, "signal 9");
  EXPECT_FAILS(run_command("/no/such/program", {}), kConflict, "status 127");
}

// The shell's child and a child that ignores SIGTERM keep the pipe open while they live:
// end of file on the pipe means that both are dead.
TEST(Command, KillsProcessGroupOnTimeout) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const Status status =
      run_command("sleep 1000 & (trap '' TERM; sleep 1000) & wait", {.timeout_seconds = 0.2});
  EXPECT_FAILS(status, kUnavailable, "0.2 s", "killed");
  ::close(fds[1]);
  char byte = 0;
  EXPECT_EQ(::read(fds[0], &byte, 1), 0);
  ::close(fds[0]);
}

// A trainer or a container's first process may ignore SIGCHLD: the kernel then discards the exit
// status of children.
TEST(Command, ReportsExitStatusWithSigchldIgnored) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  EXPECT_TRUE(run_command("exit 0", {}).ok());
  EXPECT_FAILS(run_command("exit 7", {}), kConflict, "status 7");
  EXPECT_FAILS(run_command("kill -9 $$", {}), kConflict, "signal 9");
  // The command waits for children of its own.
  EXPECT_FAILS(run_command("sh -c 'exit 5' & wait $!", {}), kConflict, "status 5");
  EXPECT_FAILS(run_command("sleep 1000", {.timeout_seconds = 0.1}), kUnavailable, "killed");
  ::signal(SIGCHLD, before);
}

TEST(Command, ReportsExitStatusWithAnotherThreadReaping) {
  std::atomic<bool> stop{false};
  std::thread reaper([&] {
    while (!stop) {
      if (::waitpid(-1, nullptr, 0) < 0) std::this_thread::yield();
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(run_command("exit 0", {}).ok());
    EXPECT_FAILS(run_command("exit 7", {}), kConflict, "status 7");
  }
  stop = true;
  reaper.join();
}

TEST(Command, UnknownExitStatusIsAFailure) {
  for (const auto disposition : {SIG_DFL, SIG_IGN}) {
    const auto before = ::signal(SIGCHLD, disposition);
    EXPECT_FAILS(run_command("kill -9 $PPID", {}), kUnavailable, "is unknown");
    EXPECT_FAILS(run_command("kill -9 0", {}), kUnavailable, "is unknown");
    ::signal(SIGCHLD, before);
  }
}

TEST(Command, RunsCommandsThatLookLikeOptions) {
  EXPECT_FAILS(run_command("-e", {}), kConflict, "status 127");
}

TEST(Command, StopsWhenCancelled) {
  const TempFolder folder;
  const fs::path started = folder.path() / "started", tidy = folder.path() / "tidy";
  const auto cancel = [&] { return fs::exists(started); };
  // The command may clean up on SIGTERM; processes that it leaves behind are killed.
  const std::string command = "trap 'echo tidied > " + tidy.string() + "; exit 0' TERM; touch " +
                              started.string() + "; sleep 1000 & wait";
  EXPECT_FAILS(run_command(command, {.cancelled = cancel}), kCancelled, "on request");
  EXPECT_EQ(read_file(tidy), "tidied\n");
  EXPECT_FAILS(run_command("sleep 1000", {.cancelled = [] { return true; }}), kCancelled,
               "on request");
}

TEST(Command, DoesNotInheritIgnoredSignals) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  const Status status = run_command("kill -PIPE $$", {});
  ::signal(SIGPIPE, before);
  EXPECT_FAILS(status, kConflict, "signal 13");
}

}  // namespace
}  // namespace deltawire::testing
