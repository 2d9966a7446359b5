// How far a pull is: of the bytes that it fetches and the weights that it goes through.
#pragma once

#include <algorithm>
#include <utility>

#include "deltawire/progress.h"
#include "deltawire/replica.h"

namespace deltawire {

// Outlives what it gives.
class PullProgress {
 public:
  // `report`: says how much there is to do, as soon as that is known.
  PullProgress(Progress tell, const PullReport& report) : tell_(std::move(tell)), report_(report) {}

  Progress of_fetching() const { return after(built_); }
  Progress of_building() const { return after(fetched_ + built_); }
  void set_fetched(uint64_t bytes) { fetched_ = bytes; }
  void add_built(uint64_t bytes) { built_ += bytes; }

 private:
  Progress after(uint64_t done_before) const {
    if (!tell_) return {};
    const uint64_t total = report_.bytes + report_.weights_bytes;
    return [this, done_before, total](uint64_t done, uint64_t) {
      return tell_(std::min(total, done_before + done), total);
    };
  }

  const Progress tell_;
  const PullReport& report_;
  uint64_t fetched_ = 0, built_ = 0;
};

}  // namespace deltawire
