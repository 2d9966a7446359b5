#include "store/retrying_store.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "store/bodies.h"

namespace deltawire {

double longest_pause(const RetryPolicy& policy, unsigned retry) noexcept {
  return std::min(policy.max_seconds, std::ldexp(policy.first_seconds, int(std::min(retry, 60u))));
}

double random_pause(const RetryPolicy& policy, unsigned retry) {
  thread_local std::mt19937_64 generator(std::random_device{}());
  return std::uniform_real_distribution<double>(0, longest_pause(policy, retry))(generator);
}

RetryingStore::RetryingStore(std::shared_ptr<Store> inner, RetryPolicy policy, StoreClock clock)
    : ForwardingStore(std::move(inner)), policy_(policy), clock_(std::move(clock)) {}

Result<Capabilities> RetryingStore::capabilities() {
  return retry([&] { return inner().capabilities(); });
}

Status RetryingStore::put(std::string_view name, const Body& body) {
  return retry([&] { return inner().put(name, body); });
}

Status RetryingStore::put_if_absent(std::string_view name, const Body& body) {
  unsigned tries = 0;
  Status status = retry([&] {
    ++tries;
    return inner().put_if_absent(name, body);
  });
  if (status.code() != Code::kConflict || tries == 1) return status;
  Result<bool> ours = holds_body(*this, name, body);
  if (ours.ok()) return *ours ? Status() : status;
  // The object was removed meanwhile, so its writer is unknown.
  if (ours.status().code() == Code::kNotFound) return status;
  return std::move(ours).status();
}

Result<ObjectInfo> RetryingStore::stat(std::string_view name) {
  return retry([&] { return inner().stat(name); });
}

Result<std::string> RetryingStore::get(std::string_view name, uint64_t max_bytes) {
  return retry([&] { return inner().get(name, max_bytes); });
}

Status RetryingStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  return retry([&] { return inner().read(name, offset, out); });
}

Status RetryingStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  return retry([&] { return inner().download(name, size_bytes, sink); });
}

Result<std::vector<ObjectInfo>> RetryingStore::list(std::string_view prefix,
                                                    std::string_view start_after, size_t limit) {
  return retry([&] { return inner().list(prefix, start_after, limit); });
}

Status RetryingStore::remove(std::string_view name) {
  return retry([&] { return inner().remove(name); });
}

Result<int64_t> RetryingStore::clock() {
  return retry([&] { return inner().clock(); });
}

}  // namespace deltawire
