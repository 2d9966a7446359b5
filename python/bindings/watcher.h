// Progress callbacks, through which Ctrl-C and `progress=` can cancel a call.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <optional>

#include <sys/syscall.h>
#include <future>
#include <system_error>
#include "deltawire/delta.h"
#include "gil.h"

namespace deltawire::python {

namespace nb = nanobind;

// Belongs to an object whose calls it watches, one at a time.
class Watcher {
 public:
  // `callback(done, total)`, or None. A call is cancelled if it returns False, or if the
  // interpreter is finalizing.
  explicit Watcher(nb::object callback) : callback_(std::move(callback)) {}
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  Progress progress() {
    return [this](uint64_t done, uint64_t total) { return ask(done, total); };
  }
  nb::object& callback() noexcept { return callback_; }

  // After a call, with the GIL: throws the exception that Python raised during it.
  void rethrow();

 private:
  bool ask(uint64_t done, uint64_t total);

  nb::object callback_;
  std::optional<nb::python_error> raised_;
  std::chrono::steady_clock::time_point last_;
  uint64_t last_done_ = 0;
};

// body() -> Status or Result, without the GIL. Calls abort() on Ctrl-C. Only Python's main thread
// receives signals; other threads run body() directly.
template <class Body, class Abort>
auto interruptible(const Body& body, const Abort& abort) {
  std::future<decltype(body())> call;
  if (::getpid() == ::syscall(SYS_gettid)) {
    try {
      call = std::async(std::launch::async, body);
    } catch (const std::system_error&) {  // cannot create a thread
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
