// Counts what is asked of another store, and how long that takes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "store/forwarding_store.h"

namespace deltawire {

// What a store has done so far, by kind of request: for metrics, reports and JSON.
enum class StoreOperation : uint8_t {
  kPut,
  kPutIfAbsent,
  kStat,
  kGet,
  kRead,
  kDownload,
  kList,
  kRemove,
};
inline constexpr size_t kNumStoreOperations = 8;

// "put", "put_if_absent", ...: labels of metrics, keys of JSON.
std::string_view store_operation_name(StoreOperation operation) noexcept;

struct OperationCounts {
  uint64_t calls = 0;    // every attempt is one
  uint64_t errors = 0;   // failed calls; NotFound and Conflict are answers, not failures
  uint64_t retries = 0;  // calls that were made because one before had failed
  uint64_t bytes = 0;    // of objects, without what the protocol adds
  double seconds = 0;    // summed over calls: threads overlap
};

// Shared by a store (StoreOptions::metrics) and whoever reports. Thread-safe.
class StoreMetrics {
 public:
  OperationCounts counts(StoreOperation operation) const noexcept;
  OperationCounts total() const noexcept;

  void add_call(StoreOperation operation, uint64_t bytes, double seconds, bool failed) noexcept;
  void add_retry(StoreOperation operation) noexcept;

 private:
  struct Counters {
    std::atomic<uint64_t> calls{0}, errors{0}, retries{0}, bytes{0}, nanoseconds{0};
  };
  std::array<Counters, kNumStoreOperations> counters_;
};

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
