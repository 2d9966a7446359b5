// Counts requests.
#pragma once

#include <atomic>

#include "store/forwarding_store.h"

namespace deltawire::cli {

class CountingStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;

  std::atomic<uint64_t> requests{0};

  Result<ObjectInfo> stat(std::string_view name) override { return ++requests, inner().stat(name); }
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    return ++requests, inner().get(name, max_bytes);
  }
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override {
    return ++requests, inner().list(prefix, start_after, limit);
  }
};

}  // namespace deltawire::cli
