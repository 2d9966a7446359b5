// When the phases of a pull began and ended.
#pragma once

#include <chrono>
#include <string>

#include "deltawire/replica.h"

namespace deltawire {

class PhaseClock {
 public:
  explicit PhaseClock(PullReport* report) : report_(report) {}

  void begin(std::string name) {  // ends the one before
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
    return std::chrono::duration<double>(time - start_).count();
  }

 private:
  PullReport* report_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool open_ = false;
};

}  // namespace deltawire
