// What a store has done so far, by kind of request: for metrics, reports and JSON.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace deltawire {

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

}  // namespace deltawire
