#include "store/retry_policy.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace deltawire {

double longest_pause(const RetryPolicy& policy, unsigned retry) noexcept {
  return std::min(policy.max_seconds, std::ldexp(policy.first_seconds, int(std::min(retry, 60u))));
}

double random_pause(const RetryPolicy& policy, unsigned retry) {
  thread_local std::mt19937_64 generator(std::random_device{}());
  return std::uniform_real_distribution<double>(0, longest_pause(policy, retry))(generator);
}

}  // namespace deltawire
