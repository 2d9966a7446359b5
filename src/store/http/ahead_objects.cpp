#include "store/http/ahead_objects.h"

#include <algorithm>

#include "base/guard.h"
#include "store/bodies.h"

namespace deltawire::http {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
constexpr size_t kMaxEntries = 1000;

Result<std::shared_ptr<const Body>> fetched(const AnnouncedObject& object,
                                            const AheadObjects::Fetch& fetch) {
  return guard_memory("fetching ahead", [&]() -> Result<std::shared_ptr<const Body>> {
    const auto bytes = std::make_shared<std::vector<uint8_t>>(size_t(object.size_bytes));
    DW_RETURN_IF_ERROR(fetch(object.name, *bytes));
    return std::shared_ptr<const Body>(std::make_shared<OwnedBody>(bytes, *bytes));
  });
}

}  // namespace

uint64_t AheadObjects::last_number() const {
  const std::lock_guard lock(mutex_);
  return last_number_;
}

void AheadObjects::announce(std::vector<AnnouncedObject> objects) {
  const std::lock_guard lock(mutex_);
  for (AnnouncedObject& object : objects) {
    if (object.number <= last_number_) continue;
    last_number_ = object.number;
    entries_.emplace(object.number, Entry{std::move(object), nullptr});
    if (entries_.size() > kMaxEntries) entries_.erase(entries_.begin());
  }
}

void AheadObjects::committed() {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.second.is_old; });
  for (auto& [number, entry] : entries_) entry.is_old = true;
}

uint64_t AheadObjects::held_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, entry] : entries_) bytes += entry.body ? entry.body->size() : 0;
  return bytes;
}

std::vector<SentObject> AheadObjects::after(uint64_t seen, const Fetch& fetch) {
  const std::lock_guard one_at_a_time(fetching_);
  for (;;) {
    AnnouncedObject object;
    {
      const std::lock_guard lock(mutex_);
      const auto found = entries_.upper_bound(seen);
      if (found == entries_.end()) return {};
      const Entry& entry = found->second;
      if (entry.body) return {{found->first, entry.object.name, entry.body}};
      object = entry.object;
      if (object.size_bytes > kMaxBytes - std::min(kMaxBytes, held_bytes())) {
        entries_.erase(found);
        continue;
      }
    }
    auto body = fetched(object, fetch);
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(object.number);
    if (found == entries_.end()) continue;  // committed meanwhile
    if (body.ok()) {
      found->second.body = std::move(*body);
    } else {
      entries_.erase(found);
    }
  }
}

std::shared_ptr<const Body> AheadObjects::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, entry] : entries_) {
    if (entry.object.name == name) return entry.body;
  }
  return nullptr;
}

void AheadObjects::drop(std::string_view name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.object.name == name; });
}

}  // namespace deltawire::http
