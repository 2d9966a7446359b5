// Turns std::bad_alloc into a Status, and makes parallel loops fail deterministically.
#pragma once

#include <atomic>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/thread_pool.h"
#include "deltawire/status.h"

namespace deltawire {

// Calls `body`, which returns a Status or a Result. Running out of memory becomes OutOfMemory with
// `doing` as its message. For boundaries that an exception must not cross (public functions,
// threads, callbacks of C libraries) and where the call continues after a failure. Code in between
// lets the exception pass.
template <class Body>
auto guard_memory(const char* doing, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory(doing);
  } catch (const std::length_error&) {  // a vector asked for more than an address space
    return out_of_memory(doing);
  }
}

// Runs body(index, worker) -> Status over [0, n). Of several failures it returns the one with the
// lowest index, in whatever order they happened. Indices after a failure may be skipped.
template <class Body>
Status parallel_try(const char* doing, ThreadPool* pool, size_t n, const Body& body) {
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
