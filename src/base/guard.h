// Keeps exceptions inside a layer and makes parallel loops fail the same way on any number of
// threads.
#pragma once

#include <atomic>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/thread_pool.h"
#include "deltawire/status.h"

namespace deltawire {

// What is being done, for the message when there is no memory for it: short enough that a
// std::string of it needs none of its own.
class Doing {
 public:
  template <size_t kSize>
  constexpr Doing(const char (&text)[kSize]) : text_(text) {  // NOLINT: a literal will do
    static_assert(kSize <= 16, "at most 15 characters");
  }
  const char* text() const noexcept { return text_; }

 private:
  const char* text_;
};

// Calls `body`, which returns a Status or a Result; running out of memory becomes OutOfMemory that
// names what was being done.
template <class Body>
auto guard_memory(Doing doing, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory(doing.text());
  } catch (const std::length_error&) {  // a vector asked for more than an address space
    return out_of_memory(doing.text());
  }
}

// Runs body(index, worker) -> Status over [0, n). Of several failures the one with the lowest index
// is returned, whatever the order they happened in; work behind a failure may be left out.
template <class Body>
Status parallel_try(Doing doing, ThreadPool* pool, size_t n, const Body& body) {
  std::atomic<size_t> first_failed{n};
  std::mutex mutex;
  Status failure;
  parallel_for(pool, n, [&](size_t index, unsigned worker) {
    if (index > first_failed.load(std::memory_order_relaxed)) return;
    Status status = guard_memory(doing, [&]() -> Status { return body(index, worker); });
    if (status.ok()) return;
    const std::lock_guard lock(mutex);
    if (index >= first_failed.load(std::memory_order_relaxed)) return;
    first_failed.store(index, std::memory_order_relaxed);
    failure = std::move(status);
  });
  return failure;
}

}  // namespace deltawire
