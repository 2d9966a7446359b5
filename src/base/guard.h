// Keeps exceptions inside the codec layer and makes parallel loops fail the same way on any number
// of threads.
#pragma once

#include <atomic>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/thread_pool.h"
#include "deltawire/status.h"

namespace deltawire {

// Calls `body`, which returns a Status or a Result; running out of memory becomes OutOfMemory.
// The message is short enough to need no memory of its own.
template <class Body>
auto guard_memory(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory("codec buffers");
  } catch (const std::length_error&) {  // a vector asked for more than an address space
    return out_of_memory("codec buffers");
  }
}

// Runs body(index, worker) -> Status over [0, n). Of several failures the one with the lowest index
// is returned, whatever the order they happened in; work behind a failure may be left out.
template <class Body>
Status parallel_try(ThreadPool* pool, size_t n, const Body& body) {
  std::atomic<size_t> first_failed{n};
  std::mutex mutex;
  Status failure;
  parallel_for(pool, n, [&](size_t index, unsigned worker) {
    if (index > first_failed.load(std::memory_order_relaxed)) return;
    Status status = guard_memory([&]() -> Status { return body(index, worker); });
    if (status.ok()) return;
    const std::lock_guard lock(mutex);
    if (index >= first_failed.load(std::memory_order_relaxed)) return;
    first_failed.store(index, std::memory_order_relaxed);
    failure = std::move(status);
  });
  return failure;
}

}  // namespace deltawire
