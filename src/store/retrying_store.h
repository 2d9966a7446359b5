// Retries operations that failed with Unavailable.
#pragma once

#include <string>
#include <utility>

#include "base/stop.h"
#include "store/forwarding_store.h"

namespace deltawire {

struct RetryPolicy {
  unsigned retries = 6;  // after the first try
  double first_seconds = 0.25, max_seconds = 20;
};

// The longest pause before retry number `retry` (0, 1, ...): doubles up to the cap.
double longest_pause(const RetryPolicy& policy, unsigned retry) noexcept;
// A random pause up to that ("full jitter"), so that clients that failed together do not retry
// together.
double random_pause(const RetryPolicy& policy, unsigned retry);

inline const Status& status_of(const Status& status) noexcept { return status; }
template <class T>
const Status& status_of(const Result<T>& result) noexcept {
  return result.status();
}

// Calls until the result is not Unavailable, the retries are used up, or a stop was requested. The
// last result is returned; after Unavailable the operation may have been carried out.
template <class Call>
auto retry_unavailable(const RetryPolicy& policy, const StoreClock& clock, const Call& call)
    -> decltype(call()) {
  for (unsigned retry = 0;; ++retry) {
    auto result = call();
    if (status_of(result).code() != Code::kUnavailable) return result;
    if (retry == policy.retries ||
        !sleep_unless_stopped(random_pause(policy, retry), clock.sleep)) {
      if (retry == 0) return result;
      return unavailable(status_of(result).message() + " (tried " + std::to_string(retry + 1) +
                         " times)");
    }
  }
}

// Retries only Unavailable. If a retried put_if_absent finds the name taken, it checks whether the
// object has our bytes: then an earlier attempt succeeded and only its answer was lost.
class RetryingStore final : public ForwardingStore {
 public:
  RetryingStore(std::shared_ptr<Store> inner, RetryPolicy policy, StoreClock clock = real_clock());

  Result<Capabilities> capabilities() override;
  Status put(std::string_view name, const Body& body) override;
  Status put_if_absent(std::string_view name, const Body& body) override;
  Result<ObjectInfo> stat(std::string_view name) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override;
  Status remove(std::string_view name) override;
  Result<int64_t> clock() override;

 private:
  auto retry(const auto& call) { return retry_unavailable(policy_, clock_, call); }

  const RetryPolicy policy_;
  const StoreClock clock_;
};

}  // namespace deltawire
