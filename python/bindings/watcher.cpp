#include "watcher.h"

#include "gil.h"

namespace deltawire::python {
namespace {

// Often enough for a person who waits, rarely enough to cost nothing.
constexpr auto kInterval = std::chrono::milliseconds(50);

}  // namespace

bool Watcher::ask(uint64_t done, uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  const bool just_done = done == total && last_done_ != done;
  if (now - last_ < kInterval && !just_done) return true;
  last_ = now;
  last_done_ = done;
  return with_gil(false, [&] {
    if (raised_) return false;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return callback_.is_none() || !callback_(done, total).is(nb::bool_(false));
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
      return false;
    }
  });
}

void Watcher::rethrow() {
  if (!raised_) return;
  nb::python_error error = std::move(*raised_);
  raised_.reset();
  throw error;
}

}  // namespace deltawire::python
