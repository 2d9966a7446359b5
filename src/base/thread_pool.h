// A fixed set of workers that share one loop at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace deltawire {

// parallel_for(n, body) calls body(i, worker) once for each i in [0, n), in any order, from
// `num_workers()` workers of which the caller is number 0, and returns when all are done. What a
// body computes must depend on i alone, so that results do not depend on the number of threads.
// One loop at a time: bodies must not call parallel_for of the same pool. What a body throws is
// thrown by parallel_for when all workers are done; of several exceptions, any one.
class ThreadPool {
 public:
  // 0: one per core. Fewer, down to the caller alone, if the system refuses threads.
  explicit ThreadPool(unsigned num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned num_workers() const noexcept;
  void parallel_for(size_t n, const std::function<void(size_t index, unsigned worker)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Cores that this process may use; containers and taskset may allow fewer than the machine has.
unsigned usable_cores();

// Runs inline without a pool. Codecs use this form.
inline void parallel_for(ThreadPool* pool, size_t n,
                         const std::function<void(size_t index, unsigned worker)>& body) {
  if (pool != nullptr && pool->num_workers() > 1 && n > 1) return pool->parallel_for(n, body);
  for (size_t i = 0; i < n; ++i) body(i, 0);
}

inline unsigned num_workers(const ThreadPool* pool) noexcept {
  return pool == nullptr ? 1 : pool->num_workers();
}

// Threads, as many as the system allows.

// Starts up to `count` threads that call body(i). There are fewer if memory or the container's
// process limit is exhausted; callers must work with any number, including none.
template <class Body>
void start_threads(size_t count, const Body& body, std::vector<std::thread>* threads) {
  threads->reserve(threads->size() + count);
  try {
    for (size_t i = 0; i < count; ++i) threads->emplace_back([body, i] { body(i); });
  } catch (const std::system_error&) {
  }
}

}  // namespace deltawire
