// A moment until which something is waited for. Every wait of this layer has one.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "base/stop.h"

namespace deltawire {

class Deadline {
 public:
  // Seconds from now; NaN and negative numbers mean now.
  explicit Deadline(double seconds) : end_(steady_seconds() + (seconds > 0 ? seconds : 0)) {}

  double left() const { return std::max(end_ - steady_seconds(), 0.0); }
  bool over() const { return steady_seconds() >= end_; }
  Deadline sooner(double seconds) const { return Deadline(std::min(left(), seconds)); }

  // For one wait: short where the program may be asked to end, which no descriptor tells.
  double wait_seconds() const { return std::min(left(), stop_can_be_requested() ? 0.1 : 60.0); }
  // The same for poll(), rounded up: never a busy loop before the end.
  int wait_ms() const { return int(wait_seconds() * 1000) + 1; }

 private:
  double end_;
};

}  // namespace deltawire
