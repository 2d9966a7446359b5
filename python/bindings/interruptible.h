// A call that only waits, and has no progress to tell: Ctrl-C is heard here while another thread
// makes it.
#pragma once

#include <sys/syscall.h>

#include <chrono>
#include <future>
#include <optional>
#include <system_error>

#include "gil.h"

namespace deltawire::python {

// body() -> Status or Result, without the GIL. `abort()` makes it end when Ctrl-C was pressed. Only
// Python's main thread hears of signals: others make the call themselves.
template <class Body, class Abort>
auto interruptible(const Body& body, const Abort& abort) {
  std::future<decltype(body())> call;
  if (::getpid() == ::syscall(SYS_gettid)) {
    try {
      call = std::async(std::launch::async, body);
    } catch (const std::system_error&) {  // no thread to be had
    }
  }
  if (!call.valid()) return without_gil([&] { return body(); });
  const auto ended = [&] {
    return call.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
  };
  std::optional<nb::python_error> raised;
  while (!without_gil(ended)) {
    if (raised || PyErr_CheckSignals() == 0) continue;
    raised.emplace();
    without_gil(abort);
  }
  if (raised) throw nb::python_error(std::move(*raised));
  return call.get();
}

}  // namespace deltawire::python
