// Waiting for what can only be asked for: MPI and NCCL wake nobody.
#pragma once

#include <time.h>

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/stop.h"
#include "deltawire/status.h"

namespace deltawire {

// "after 2.5 s"
inline std::string after_seconds(double seconds) {
  std::string digits = std::to_string(seconds);
  digits.resize(digits.find('.') + 2);
  return "after " + digits + " s";
}

// One wait of a call. `aborted` may be set by another thread.
class Polling {
 public:
  Polling(double timeout_seconds, const std::atomic<bool>& aborted)
      : end_(steady_seconds() + timeout_seconds),
        timeout_seconds_(timeout_seconds),
        aborted_(aborted) {}

  bool late() const { return steady_seconds() >= end_; }
  bool aborted() const { return aborted_.load(std::memory_order_relaxed) || stop_requested(); }
  double timeout_seconds() const { return timeout_seconds_; }

  void moved() { rests_ = 0; }  // something was done: ask again soon
  // Nothing was: leaves the core to others, at first for no time, then for up to half a
  // millisecond.
  void rest() {
    constexpr long kShortest = 1'000, kLongest = 500'000;  // ns
    const int doublings = ++rests_ < kYields ? 0 : (rests_ - kYields) / 8;
    const long pause = rests_ < kYields ? 0 : doublings > 8 ? kLongest : kShortest << doublings;
    const timespec time{0, pause};
    ::nanosleep(&time, nullptr);
  }

 private:
  static constexpr int kYields = 64;

  const double end_, timeout_seconds_;
  const std::atomic<bool>& aborted_;
  int rests_ = 0;
};

}  // namespace deltawire
