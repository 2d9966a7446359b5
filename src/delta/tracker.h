// Progress of a pipeline with several stages, and its cancellation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/file.h"
#include "deltawire/delta.h"
#include "deltawire/status.h"

namespace deltawire {

// Must outlive the callbacks that it returns. One thread.
class Tracker {
 public:
  Tracker(const Progress& progress, uint64_t total) : progress_(progress), total_(total) {}
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // Progress of one stage, added to the stages before it.
  Progress stage() {
    return [this](uint64_t done, uint64_t) {
      now_ = std::min(total_, finished_ + done);
      return ask();
    };
  }
  void finish_stage(uint64_t bytes) { finished_ += bytes; }

  // For work without progress of its own, such as writing and syncing: only checks for
  // cancellation.
  Poll poll() {
    return [this]() -> Status { return ask() ? Status() : cancelled("stopped on request"); };
  }

 private:
  bool ask() const { return !progress_ || progress_(now_, total_); }

  const Progress& progress_;
  const uint64_t total_;
  uint64_t finished_ = 0, now_ = 0;
};

}  // namespace deltawire
