#include "store/store_metrics.h"

namespace deltawire {

std::string_view store_operation_name(StoreOperation operation) noexcept {
  constexpr std::string_view kNames[kNumStoreOperations] = {
      "put", "put_if_absent", "stat", "get", "read", "download", "list", "remove"};
  return kNames[size_t(operation)];
}

OperationCounts StoreMetrics::counts(StoreOperation operation) const noexcept {
  const Counters& from = counters_[size_t(operation)];
  return {from.calls, from.errors, from.retries, from.bytes, double(from.nanoseconds) * 1e-9};
}

OperationCounts StoreMetrics::total() const noexcept {
  OperationCounts sum;
  for (size_t i = 0; i < kNumStoreOperations; ++i) {
    const OperationCounts one = counts(StoreOperation(i));
    sum.calls += one.calls;
    sum.errors += one.errors;
    sum.retries += one.retries;
    sum.bytes += one.bytes;
    sum.seconds += one.seconds;
  }
  return sum;
}

void StoreMetrics::add_call(StoreOperation operation, uint64_t bytes, double seconds,
                            bool failed) noexcept {
  Counters& to = counters_[size_t(operation)];
  ++to.calls;
  to.errors += failed ? 1 : 0;
  to.bytes += bytes;
  to.nanoseconds += uint64_t(seconds * 1e9);
}

void StoreMetrics::add_retry(StoreOperation operation) noexcept {
  ++counters_[size_t(operation)].retries;
}

}  // namespace deltawire
