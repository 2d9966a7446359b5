#include "base/sync_point.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_files.h"

namespace deltawire::testing {
namespace {

// The wait status of a child that passes three points.
int pass_three(const TempFolder& folder, const char* crash_at) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("DELTAWIRE_CRASH_LOG", (folder.path() / "log").c_str(), 1);
    if (crash_at != nullptr) ::setenv("DELTAWIRE_CRASH_AT", crash_at, 1);
    DW_SYNC_POINT("one");
    DW_SYNC_POINT("two: written");
    DW_SYNC_POINT("three");
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST(SyncPoint, KillsAtTheNthAndLogsAllBefore) {
  if (!DELTAWIRE_FAULTS) GTEST_SKIP() << "this build has no faults";
  const TempFolder all, two, later;
  EXPECT_TRUE(WIFEXITED(pass_three(all, nullptr)));
  EXPECT_EQ(read_file(all.path() / "log"), "1 one\n2 two: written\n3 three\n");
  const int status = pass_three(two, "2");
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_EQ(read_file(two.path() / "log"), "1 one\n2 two: written\n");
  EXPECT_TRUE(WIFEXITED(pass_three(later, "4")));
}

}  // namespace deltawire::testing
