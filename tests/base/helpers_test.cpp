#include "base/bytes.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>

#include "base/process.h"
#include "base/spare_vectors.h"
#include "base/sync_point.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST(Hex, WritesTwoDigitsForEachByte) {
  const uint8_t bytes[] = {0x00, 0x0f, 0xa5, 0xff};
  EXPECT_EQ(to_hex(bytes), "000fa5ff");
  EXPECT_EQ(to_hex(std::string_view("\x7f\x80", 2)), "7f80");
  EXPECT_EQ(to_hex(Bytes()), "");
}

TEST(Hex, AcceptsLowercaseDigitsOnly) {
  EXPECT_TRUE(is_hex("0123456789abcdef"));
  for (const char* other : {"A", "g", " 1", "0x1"}) EXPECT_FALSE(is_hex(other)) << other;
}

TEST(Hex, RandomStringsDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(random_hex(15));
  EXPECT_EQ(seen.size(), 100);
  for (const std::string& text : seen) EXPECT_TRUE(is_hex(text) && text.size() == 15) << text;
  EXPECT_EQ(random_hex(0), "");
}

TEST(Process, NameIsHostAndPid) {
  EXPECT_EQ(process_name(), host_name() + ":" + std::to_string(::getpid()));
}

constexpr size_t kMiB = size_t{1} << 20;

TEST(SpareVectorsTest, ReusesMemoryForSlightlyLargerSizes) {
  SpareVectors spare(64 * kMiB);
  std::vector<uint8_t> first = spare.take(kMiB);
  EXPECT_EQ(first.size(), kMiB);
  const uint8_t* const memory = first.data();
  spare.give_back(std::move(first));
  EXPECT_GE(spare.held_bytes(), kMiB);
  const std::vector<uint8_t> second = spare.take(kMiB + kMiB / 16);
  EXPECT_EQ(second.size(), kMiB + kMiB / 16);
  EXPECT_EQ(second.data(), memory);
  EXPECT_EQ(spare.held_bytes(), 0);
}

TEST(SpareVectorsTest, DoesNotReuseMuchLargerVectors) {
  SpareVectors spare(64 * kMiB);
  spare.give_back(std::vector<uint8_t>(8 * kMiB));
  EXPECT_EQ(spare.take(kMiB).size(), kMiB);
  EXPECT_EQ(spare.held_bytes(), 8 * kMiB);
}

TEST(SpareVectorsTest, RespectsTheLimit) {
  SpareVectors spare(3 * kMiB);
  for (int i = 0; i < 5; ++i) spare.give_back(std::vector<uint8_t>(kMiB));
  EXPECT_EQ(spare.held_bytes(), 3 * kMiB);
  spare.give_back(std::vector<uint8_t>(100));  // not worth it
  EXPECT_EQ(spare.held_bytes(), 3 * kMiB);
}

TEST(SpareVectorsTest, AllocatesWhenNothingFits) {
  SpareVectors spare(kMiB);
  EXPECT_TRUE(spare.take(0).empty());
  EXPECT_EQ(spare.take(5).size(), 5);
}

TEST(ThreadPool, CallsEveryIndexOnce) {
  for (const unsigned threads : {1U, 2U, 7U}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_workers(), threads);
    for (const size_t n : {size_t{0}, size_t{1}, size_t{3}, size_t{1000}}) {
      std::vector<std::atomic<int>> calls(n);
      std::atomic<bool> worker_in_range{true};
      pool.parallel_for(n, [&](size_t i, unsigned worker) {
        ++calls[i];
        if (worker >= threads) worker_in_range = false;
      });
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(calls[i], 1) << threads << " threads, " << n;
      EXPECT_TRUE(worker_in_range);
    }
  }
}

TEST(ThreadPool, RunsManyLoopsInSequence) {
  ThreadPool pool(3);
  std::atomic<size_t> sum{0};
  for (int round = 0; round < 2000; ++round)
    pool.parallel_for(5, [&](size_t i, unsigned) { sum += i; });
  EXPECT_EQ(sum, 2000U * 10);
}

TEST(ThreadPool, RethrowsExceptionsOfTheBody) {
  ThreadPool pool(3);
  for (int round = 0; round < 100; ++round) {
    EXPECT_THROW(pool.parallel_for(64, [](size_t, unsigned) { throw std::bad_alloc(); }),
                 std::bad_alloc);
    std::atomic<size_t> count{0};
    pool.parallel_for(64, [&](size_t, unsigned) { ++count; });
    ASSERT_EQ(count, 64U);
  }
}

}  // namespace

namespace {

// Returns the wait status of a child that passes three sync points.
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

TEST(SyncPoint, KillsAtTheNthPointAndLogsThoseBefore) {
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
