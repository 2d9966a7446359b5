#include "publish/replica_rates.h"

#include <algorithm>
#include <string>
#include <vector>

#include "chain/heartbeat.h"
#include "chain/names.h"

namespace deltawire {
namespace {

constexpr int64_t kHour = 3600;
constexpr size_t kMaxAsked = 16;       // a fleet is as quick as a few of it
constexpr size_t kMaxListed = 10'000;  // of a folder that anybody may write to

std::vector<ObjectInfo> newest_heartbeats(Store& store) {
  std::vector<ObjectInfo> objects;
  (void)list_all(store, kReplicaPrefix, "", [&](const ObjectInfo& object) {
    objects.push_back(object);
    return objects.size() < kMaxListed;
  });
  const size_t count = std::min(objects.size(), kMaxAsked);
  std::partial_sort(objects.begin(), objects.begin() + ptrdiff_t(count), objects.end(),
                    [](const auto& a, const auto& b) { return a.modified > b.modified; });
  objects.resize(count);
  return objects;
}

}  // namespace

FetchRates fetch_rates(Store& store, int64_t now) {
  std::vector<double> rates;
  for (const ObjectInfo& object : newest_heartbeats(store)) {
    const Result<std::string> text = store.get(object.name, kMaxHeartbeatBytes);
    const Result<Heartbeat> beat = text.ok() ? parse_heartbeat(*text) : text.status();
    if (!beat.ok() || now - beat->seen > kHour || !beat->fetched) continue;
    const auto& [bytes, microseconds] = *beat->fetched;
    if (bytes == 0) continue;
    rates.push_back(1e6 * double(bytes) / double(std::max<uint64_t>(1, microseconds)));
  }
  if (rates.empty()) return {};
  const auto middle = rates.begin() + ptrdiff_t((rates.size() - 1) / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  return {*middle, rates.size()};
}

}  // namespace deltawire
