// Sums that threads add to side by side.
#pragma once

#include <mutex>

#include "base/bytes.h"
#include "deltawire/digest.h"

namespace deltawire {

class SharedSums {
 public:
  void add(Bytes bytes, uint64_t offset) {
    Sums own;
    own.add(bytes, offset);
    const std::lock_guard lock(mutex_);
    sums_.add(own);
  }
  const Sums& all() const noexcept { return sums_; }  // when nobody adds any more

 private:
  std::mutex mutex_;
  Sums sums_;
};

}  // namespace deltawire
