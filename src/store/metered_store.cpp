#include "store/metered_store.h"

#include <atomic>

#include "store/retrying_store.h"

namespace deltawire {
namespace {

bool is_failure(Code code) {
  return code != Code::kOk && code != Code::kNotFound && code != Code::kConflict;
}

// What arrives counts, even when the rest never does.
class CountingSink final : public Sink {
 public:
  explicit CountingSink(Sink* inner) : inner_(inner) {}
  Status write(uint64_t offset, std::span<const uint8_t> bytes) override {
    count_ += bytes.size();
    return inner_->write(offset, bytes);
  }
  uint64_t count() const { return count_; }

 private:
  Sink* const inner_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace

MeteredStore::MeteredStore(std::shared_ptr<Store> inner, std::shared_ptr<StoreMetrics> metrics,
                           StoreClock clock)
    : ForwardingStore(std::move(inner)), metrics_(std::move(metrics)), clock_(std::move(clock)) {}

// `bytes` tells, of a call that went well, what it moved.
template <class Call, class Bytes>
auto MeteredStore::count(StoreOperation operation, const Call& call, const Bytes& bytes) {
  const double start = clock_.now();
  auto result = call();
  const uint64_t moved = status_of(result).ok() ? bytes(result) : 0;
  metrics_->add_call(operation, moved, clock_.now() - start, is_failure(status_of(result).code()));
  return result;
}

Status MeteredStore::put(std::string_view name, const Body& body) {
  return count(
      StoreOperation::kPut, [&] { return inner().put(name, body); },
      [&](const Status&) { return body.size(); });
}

Status MeteredStore::put_if_absent(std::string_view name, const Body& body) {
  return count(
      StoreOperation::kPutIfAbsent, [&] { return inner().put_if_absent(name, body); },
      [&](const Status&) { return body.size(); });
}

Result<ObjectInfo> MeteredStore::stat(std::string_view name) {
  return count(
      StoreOperation::kStat, [&] { return inner().stat(name); },
      [](const Result<ObjectInfo>&) { return 0; });
}

Result<std::string> MeteredStore::get(std::string_view name, uint64_t max_bytes) {
  return count(
      StoreOperation::kGet, [&] { return inner().get(name, max_bytes); },
      [](const Result<std::string>& text) { return text->size(); });
}

Status MeteredStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  return count(
      StoreOperation::kRead, [&] { return inner().read(name, offset, out); },
      [&](const Status&) { return out.size(); });
}

Status MeteredStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  CountingSink counting(sink);
  const double start = clock_.now();
  Status status = inner().download(name, size_bytes, &counting);
  metrics_->add_call(StoreOperation::kDownload, counting.count(), clock_.now() - start,
                     is_failure(status.code()));
  return status;
}

Result<std::vector<ObjectInfo>> MeteredStore::list(std::string_view prefix,
                                                   std::string_view start_after, size_t limit) {
  return count(
      StoreOperation::kList, [&] { return inner().list(prefix, start_after, limit); },
      [](const Result<std::vector<ObjectInfo>>&) { return 0; });
}

Status MeteredStore::remove(std::string_view name) {
  return count(
      StoreOperation::kRemove, [&] { return inner().remove(name); },
      [](const Status&) { return 0; });
}

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
