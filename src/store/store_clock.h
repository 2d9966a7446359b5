// Time as decorators see it: tests put their own in its place and never wait.
#pragma once

#include <functional>

namespace deltawire {

struct StoreClock {
  std::function<double()> now;  // seconds, never going back
  std::function<void(double seconds)> sleep;
};

StoreClock real_clock();

}  // namespace deltawire
