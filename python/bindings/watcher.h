// What the library asks while it works: shall I go on? Here Ctrl-C and `progress=` are heard.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <optional>

#include "deltawire/delta.h"

namespace deltawire::python {

namespace nb = nanobind;

// Lives as long as the object whose calls it watches. Calls come one at a time.
class Watcher {
 public:
  // `callback(done, total)`, or None. Returning False cancels, and so does the end of the
  // interpreter.
  explicit Watcher(nb::object callback) : callback_(std::move(callback)) {}
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  Progress progress() {
    return [this](uint64_t done, uint64_t total) { return ask(done, total); };
  }
  nb::object& callback() noexcept { return callback_; }

  // When a call has ended, with the GIL: throws what Python raised during it.
  void rethrow();

 private:
  bool ask(uint64_t done, uint64_t total);

  nb::object callback_;
  std::optional<nb::python_error> raised_;
  std::chrono::steady_clock::time_point last_;
  uint64_t last_done_ = 0;
};

}  // namespace deltawire::python
