// What long work says of itself: how far it is, and when its phases began and ended.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace deltawire {

// Called now and then from the calling thread with bytes done and bytes to do; while results are
// written and synced, with all done. Returning false cancels the work: it ends with Cancelled and
// leaves nothing behind, unless the result has already been put in its place.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;

// When each phase began and ended, seconds since the publish or pull began; phases overlap.
struct Phase {
  std::string name;
  double begin = 0, end = 0;
};

}  // namespace deltawire
