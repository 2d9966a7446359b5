#include "base/thread_pool.h"

#include <new>

#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST(ThreadPool, CallsEveryIndexOnceWhateverTheNumbers) {
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

TEST(ThreadPool, RunsManyLoopsOneAfterTheOther) {
  ThreadPool pool(3);
  std::atomic<size_t> sum{0};
  for (int round = 0; round < 2000; ++round)
    pool.parallel_for(5, [&](size_t i, unsigned) { sum += i; });
  EXPECT_EQ(sum, 2000U * 10);
}

TEST(ThreadPool, ThrowsWhatABodyThrew) {
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
}  // namespace deltawire::testing
