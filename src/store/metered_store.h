// Counts what is asked of another store, and how long that takes.
#pragma once

#include "store/forwarding_store.h"
#include "store/store_metrics.h"

namespace deltawire {

class MeteredStore final : public ForwardingStore {
 public:
  MeteredStore(std::shared_ptr<Store> inner, std::shared_ptr<StoreMetrics> metrics,
               StoreClock clock = real_clock());

  Status put(std::string_view name, const Body& body) override;
  Status put_if_absent(std::string_view name, const Body& body) override;
  Result<ObjectInfo> stat(std::string_view name) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override;
  Status remove(std::string_view name) override;

 private:
  template <class Call, class Bytes>
  auto count(StoreOperation operation, const Call& call, const Bytes& bytes);

  const std::shared_ptr<StoreMetrics> metrics_;
  const StoreClock clock_;
};

}  // namespace deltawire
