// Several requests at once: a store has latency.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#include "base/thread_pool.h"

namespace deltawire {

// Calls body(i) for every i below n, on a few threads. Each notes its own outcome.
inline void request_in_parallel(size_t n, const std::function<void(size_t)>& body) {
  constexpr size_t kThreads = 8;
  if (n == 0) return;
  ThreadPool pool(unsigned(std::min(n, kThreads)));
  pool.parallel_for(n, [&](size_t i, unsigned) { body(i); });
}

}  // namespace deltawire
