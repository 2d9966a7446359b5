#include "base/thread_pool.h"

#include <sched.h>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace deltawire {

unsigned usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return unsigned(std::max(1, CPU_COUNT(&set)));
  return std::max(1U, std::thread::hardware_concurrency());
}

struct ThreadPool::Impl {
  std::mutex mutex;
  std::condition_variable start, done;
  std::vector<std::thread> threads;
  const std::function<void(size_t, unsigned)>* body = nullptr;
  size_t n = 0;
  std::atomic<size_t> next{0};
  std::exception_ptr thrown;  // by a body
  uint64_t generation = 0;
  unsigned running = 0;
  bool stopping = false;

  void work(unsigned worker) {
    try {
      for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) (*body)(i, worker);
    } catch (...) {
      next.store(n, std::memory_order_relaxed);  // the others need not go on
      const std::lock_guard lock(mutex);
      thrown = std::current_exception();
    }
  }

  void thread_main(unsigned worker) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      start.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping) return;
      seen = generation;
      lock.unlock();
      work(worker);
      lock.lock();
      if (--running == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(unsigned num_threads) : impl_(std::make_unique<Impl>()) {
  const unsigned n = num_threads == 0 ? usable_cores() : num_threads;
  start_threads(
      n - 1, [impl = impl_.get()](size_t i) { impl->thread_main(unsigned(i) + 1); },
      &impl_->threads);
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->start.notify_all();
  for (auto& thread : impl_->threads) thread.join();
}

unsigned ThreadPool::num_workers() const noexcept { return unsigned(impl_->threads.size()) + 1; }

void ThreadPool::parallel_for(size_t n, const std::function<void(size_t, unsigned)>& body) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->body = &body;
    impl_->n = n;
    impl_->next.store(0, std::memory_order_relaxed);
    impl_->running = unsigned(impl_->threads.size());
    ++impl_->generation;
  }
  impl_->start.notify_all();
  impl_->work(0);
  std::unique_lock lock(impl_->mutex);
  impl_->done.wait(lock, [&] { return impl_->running == 0; });
  if (impl_->thrown) std::rethrow_exception(std::exchange(impl_->thrown, nullptr));
}

}  // namespace deltawire
