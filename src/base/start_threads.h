// Threads, as many as the system gives.
#pragma once

#include <system_error>
#include <thread>
#include <vector>

namespace deltawire {

// Starts up to `count` threads that call body(i). There are fewer when memory, or the number of
// processes that a container may have, ends before: callers must do with those, or with none.
template <class Body>
void start_threads(size_t count, const Body& body, std::vector<std::thread>* threads) {
  threads->reserve(threads->size() + count);
  try {
    for (size_t i = 0; i < count; ++i) threads->emplace_back([body, i] { body(i); });
  } catch (const std::system_error&) {
  }
}

}  // namespace deltawire
