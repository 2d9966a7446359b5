// Progress of a pull, in bytes fetched.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "deltawire/progress.h"
#include "deltawire/replica.h"

namespace deltawire {

// Records when the phases of a pull begin and end.
class PhaseClock {
 public:
  // `earlier`: seconds that the pull has already taken.
  explicit PhaseClock(PullReport* report, double earlier = 0)
      : report_(report), earlier_(earlier) {}

  void begin(std::string name) {  // ends the previous phase
    end();
    report_->phases.push_back({std::move(name), now(), 0});
    open_ = true;
  }
  void end() {
    if (open_) report_->phases.back().end = now();
    open_ = false;
  }
  double now() const { return at(std::chrono::steady_clock::now()); }
  double at(std::chrono::steady_clock::time_point time) const {
    return earlier_ + std::chrono::duration<double>(time - start_).count();
  }

 private:
  PullReport* report_;
  const double earlier_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool open_ = false;
};

// Must outlive the callbacks that it returns.
class PullProgress {
 public:
  // `report` has the total, once it is known.
  PullProgress(Progress progress, const PullReport& report)
      : progress_(std::move(progress)), report_(report) {}

  Progress of_fetching() const {
    if (!progress_) return {};
    // A piece that was sent twice counts once.
    return [this](uint64_t done, uint64_t) {
      return progress_(std::min(report_.bytes, done), report_.bytes);
    };
  }
  // While weights are patched and checked, the fetched bytes stay the same.
  Progress of_building() const {
    if (!progress_) return {};
    return [this](uint64_t, uint64_t) { return progress_(fetched_, report_.bytes); };
  }
  void set_fetched(uint64_t bytes) { fetched_ = std::min(report_.bytes, bytes); }

 private:
  const Progress progress_;
  const PullReport& report_;
  uint64_t fetched_ = 0;
};

}  // namespace deltawire
