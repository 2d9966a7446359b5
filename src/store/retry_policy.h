// How often something is tried again, and how long is waited between.
#pragma once

#include <string>
#include <utility>

#include "base/stop.h"
#include "deltawire/status.h"
#include "store/store_clock.h"

namespace deltawire {

struct RetryPolicy {
  unsigned retries = 6;  // after the first try
  double first_seconds = 0.25, max_seconds = 20;
};

// The longest pause before retry number `retry` (0, 1, ...): doubles up to the cap.
double longest_pause(const RetryPolicy& policy, unsigned retry) noexcept;
// Anything up to it ("full jitter"): clients that failed together do not come back together.
double random_pause(const RetryPolicy& policy, unsigned retry);

inline const Status& status_of(const Status& status) noexcept { return status; }
template <class T>
const Status& status_of(const Result<T>& result) noexcept {
  return result.status();
}

// Calls until the answer is not Unavailable, the policy has enough or everything is to end. In any
// case the last answer is the result: whether something was carried out stays as open as it is.
// `before_retry` is called before each call but the first.
template <class Call, class BeforeRetry>
auto retry_unavailable(const RetryPolicy& policy, const StoreClock& clock, const Call& call,
                       const BeforeRetry& before_retry) -> decltype(call()) {
  for (unsigned retry = 0;; ++retry) {
    auto result = call();
    if (status_of(result).code() != Code::kUnavailable) return result;
    if (retry == policy.retries ||
        !sleep_unless_stopped(random_pause(policy, retry), clock.sleep)) {
      if (retry == 0) return result;
      return unavailable(status_of(result).message() + " (tried " + std::to_string(retry + 1) +
                         " times)");
    }
    before_retry();
  }
}

}  // namespace deltawire
