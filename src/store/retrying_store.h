// Tries again what failed and may not fail the next time.
#pragma once

#include "store/forwarding_store.h"
#include "store/retry_policy.h"
#include "store/store_metrics.h"

namespace deltawire {

// Only Unavailable is tried again; everything else is the answer. A retried put_if_absent that
// finds the name taken looks whether it holds our bytes: then it was our own try whose answer was
// lost.
class RetryingStore final : public ForwardingStore {
 public:
  // `metrics` may be null.
  RetryingStore(std::shared_ptr<Store> inner, RetryPolicy policy,
                std::shared_ptr<StoreMetrics> metrics = nullptr, StoreClock clock = real_clock());

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
  template <class Call>
  auto retry(StoreOperation operation, const Call& call);

  const RetryPolicy policy_;
  const std::shared_ptr<StoreMetrics> metrics_;
  const StoreClock clock_;
};

}  // namespace deltawire
