#include "base/command.h"

#include <signal.h>
#include <unistd.h>

#include "test_files.h"

namespace deltawire {
namespace {

using testing::is_failure;
using testing::read_file;
using testing::TempFolder;

TEST(Command, PassesTheEnvironmentAndReplacesNames) {
  const TempFolder folder;
  const std::string out = (folder.path() / "out").string();
  ::setenv("DELTAWIRE_TEST_OLD", "kept", 1);
  ::setenv("DELTAWIRE_TEST_NEW", "lost", 1);
  const Status status = run_command("env | grep DELTAWIRE_TEST_ | sort > " + out,
                                    {{{"DELTAWIRE_TEST_NEW", "a b\"$"}}, 60});
  EXPECT_TRUE(status.ok()) << status.to_string();
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

TEST(Command, TellsHowItEnded) {
  EXPECT_TRUE(is_failure(run_command("exit 7", {}), Code::kConflict, "status 7"));
  EXPECT_TRUE(is_failure(run_command("kill -9 $$", {}), Code::kConflict, "signal 9"));
  EXPECT_TRUE(is_failure(run_command("/no/such/program", {}), Code::kConflict, "status 127"));
}

// A child of the shell and one that ignores SIGTERM hold the pipe open as long as they live:
// reading its end is waiting for theirs.
TEST(Command, KillsTheWholeGroupWhenTimeIsOver) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const Status status = run_command("sleep 1000 & (trap '' TERM; sleep 1000) & wait", {{}, 0.2});
  EXPECT_TRUE(is_failure(status, Code::kUnavailable, "0.2 s", "killed"));
  ::close(fds[1]);
  char byte = 0;
  EXPECT_EQ(::read(fds[0], &byte, 1), 0);
  ::close(fds[0]);
}

TEST(Command, DoesNotInheritIgnoredSignals) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  const Status status = run_command("kill -PIPE $$", {});
  ::signal(SIGPIPE, before);
  EXPECT_TRUE(is_failure(status, Code::kConflict, "signal 13"));
}

}  // namespace
}  // namespace deltawire
