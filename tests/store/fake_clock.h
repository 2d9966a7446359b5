// A clock that advances when somebody sleeps, so that tests of waiting do not wait.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "store/forwarding_store.h"

namespace deltawire::testing {

class FakeClock {
 public:
  StoreClock clock() {
    return {[this] {
              const std::lock_guard lock(mutex_);
              return now_;
            },
            [this](double seconds) {
              const std::lock_guard lock(mutex_);
              now_ += seconds;
              sleeps_.push_back(seconds);
            }};
  }
  void advance(double seconds) {
    const std::lock_guard lock(mutex_);
    now_ += seconds;
  }
  double now() const { return now_; }
  const std::vector<double>& sleeps() const { return sleeps_; }

 private:
  std::mutex mutex_;
  double now_ = 1000;
  std::vector<double> sleeps_;
};

}  // namespace deltawire::testing
