#include <deltawire_faults.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/directory_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr const char* kWriterFolder = "DELTAWIRE_TEST_WRITER_FOLDER";
const std::string kOld(2'500'000, 'o'), kNew(2'100'000, 'n');  // of several pieces each

void write_everything(const fs::path& folder) {
  DirectoryStore store(folder);
  if (!store.put("new/deep/part", MemoryBody(kNew)).ok()) ::_exit(1);
  if (!store.put("HEAD", MemoryBody(kNew)).ok()) ::_exit(2);
  if (!store.put_if_absent("manifests/1", MemoryBody(kNew)).ok()) ::_exit(3);
  if (!store.remove("gone/1").ok()) ::_exit(4);
  ::_exit(0);
}

// Runs this test again in another process, because sync points count from its start; it then
// writes. Returns whether it was killed at point `crash_at`.
bool writer_is_killed(const fs::path& folder, int crash_at) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);  // its report would only confuse
    ::setenv(kWriterFolder, folder.c_str(), 1);
    ::unsetenv("GTEST_TOTAL_SHARDS");  // its one test is in every share
    ::unsetenv("GTEST_SHARD_INDEX");
    ::setenv("DELTAWIRE_CRASH_AT", std::to_string(crash_at).c_str(), 1);
    ::execl("/proc/self/exe", "writer", "--gtest_filter=DirectoryCrash.*", nullptr);
    ::_exit(9);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  EXPECT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
  return killed;
}

}  // namespace

TEST(DirectoryCrash, ObjectsAreOldOrNewAfterAKill) {
  if (const char* folder = ::getenv(kWriterFolder)) write_everything(folder);
  if (!DELTAWIRE_FAULTS) GTEST_SKIP() << "this build has no faults";
  int point = 1, with_old_head = 0;
  while (true) {
    const TempFolder folder;
    DirectoryStore store(folder.path());
    ASSERT_TRUE(store.put("HEAD", MemoryBody(kOld)).ok());
    ASSERT_TRUE(store.put("gone/1", MemoryBody("x")).ok());
    const bool killed = writer_is_killed(folder.path(), point);

    const auto head = must(store.get("HEAD", 1 << 30));
    EXPECT_TRUE(head == kOld || head == kNew) << point;
    with_old_head += head == kOld;
    bool whole[2];
    const char* const names[2] = {"new/deep/part", "manifests/1"};
    for (int i = 0; i < 2; ++i) {
      const auto object = store.get(names[i], 1 << 30);
      whole[i] = object.ok();
      EXPECT_TRUE(object.ok() ? *object == kNew : object.status().code() == Code::kNotFound)
          << point;
    }
    // In the order in which they were put.
    EXPECT_TRUE(head == kOld || whole[0]) << point;
    EXPECT_TRUE(!whole[1] || head == kNew) << point;
    size_t listed = 0;
    ASSERT_TRUE(list_all(store, "", "", [&](const ObjectInfo&) { return ++listed, true; }).ok());
    EXPECT_EQ(listed, 1 + size_t(whole[0]) + size_t(whole[1]) + store.stat("gone/1").ok()) << point;
    // What the killed process left does not block the next one.
    EXPECT_TRUE(store.put("new/deep/part", MemoryBody(kNew)).ok()) << point;
    EXPECT_TRUE(whole[1] || store.put_if_absent("manifests/1", MemoryBody(kNew)).ok()) << point;
    if (!killed) break;
    ++point;
  }
  EXPECT_GT(point, 20);             // there are points at all,
  EXPECT_GT(with_old_head, 10);     // before the head was replaced
  EXPECT_LT(with_old_head, point);  // and after
}

}  // namespace deltawire::testing
