#include "store/memory_store.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "store/bodies.h"

namespace deltawire {
namespace {

constexpr size_t kMaxPuts = 256;  // that are remembered for sent_ahead()

}  // namespace

Result<int64_t> MemoryStore::clock() {
  const int64_t now = now_;
  return now != 0 ? now : unix_seconds();
}

Result<MemoryStore::Object> MemoryStore::make(std::string_view name, const Body& body) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  auto bytes = std::make_shared<std::vector<uint8_t>>(body.size());
  DW_RETURN_IF_ERROR(body.read(0, *bytes));
  return Object{std::move(bytes), clock().value()};
}

Result<MemoryStore::Object> MemoryStore::find(std::string_view name) const {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(name);
  if (found == objects_.end()) return not_found(url() + ": no object " + std::string(name));
  return found->second;
}

Status MemoryStore::put(std::string_view name, const Body& body) {
  DW_ASSIGN_OR_RETURN(Object object, make(name, body));
  const std::lock_guard lock(mutex_);
  objects_.insert_or_assign(std::string(name), std::move(object));
  puts_.emplace(puts_.empty() ? 1 : puts_.rbegin()->first + 1, name);
  if (puts_.size() > kMaxPuts) puts_.erase(puts_.begin());
  changed_.notify_all();
  return {};
}

Status MemoryStore::put_if_absent(std::string_view name, const Body& body) {
  DW_ASSIGN_OR_RETURN(Object object, make(name, body));
  const std::lock_guard lock(mutex_);
  if (!objects_.emplace(name, std::move(object)).second) {
    return conflict(url() + ": object " + std::string(name) + " is already there");
  }
  ++news_;
  changed_.notify_all();
  return {};
}

uint64_t MemoryStore::wait_for_news(uint64_t seen, double seconds) {
  std::unique_lock lock(mutex_);
  const uint64_t last_put = puts_.empty() ? 0 : puts_.rbegin()->first;
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
    return news_ > seen || (!puts_.empty() && puts_.rbegin()->first > last_put);
  });
  return news_;
}

std::vector<SentObject> MemoryStore::sent_ahead(uint64_t seen) {
  std::vector<SentObject> sent;
  const std::lock_guard lock(mutex_);
  for (auto at = puts_.upper_bound(seen); at != puts_.end(); ++at) {
    const auto found = objects_.find(at->second);
    if (found == objects_.end()) continue;
    const auto& bytes = found->second.bytes;
    sent.push_back({at->first, at->second, std::make_shared<OwnedBody>(bytes, *bytes)});
  }
  return sent;
}

std::shared_ptr<const std::vector<uint8_t>> MemoryStore::share(std::string_view name) const {
  const Result<Object> object = find(name);
  return object.ok() ? object->bytes : nullptr;
}

Result<ObjectInfo> MemoryStore::stat(std::string_view name) {
  DW_ASSIGN_OR_RETURN(const Object object, find(name));
  return ObjectInfo{std::string(name), object.bytes->size(), object.modified};
}

Result<std::string> MemoryStore::get(std::string_view name, uint64_t max_bytes) {
  DW_ASSIGN_OR_RETURN(const Object object, find(name));
  if (object.bytes->size() > max_bytes) {
    return corruption(url() + ": object " + std::string(name) + ": " +
                      std::to_string(object.bytes->size()) + " bytes is over the limit of " +
                      std::to_string(max_bytes));
  }
  return std::string(object.bytes->begin(), object.bytes->end());
}

Status MemoryStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  DW_ASSIGN_OR_RETURN(const Object object, find(name));
  if (offset > object.bytes->size() || out.size() > object.bytes->size() - offset) {
    return corruption(url() + ": object " + std::string(name) + " ends at byte " +
                      std::to_string(object.bytes->size()) + ", expected " +
                      std::to_string(offset + out.size()));
  }
  if (!out.empty()) std::memcpy(out.data(), object.bytes->data() + offset, out.size());
  return {};
}

Status MemoryStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  DW_ASSIGN_OR_RETURN(const Object object, find(name));
  if (object.bytes->size() != size_bytes) {
    return corruption(url() + ": object " + std::string(name) + ": expected " +
                      std::to_string(size_bytes) + " bytes, got " +
                      std::to_string(object.bytes->size()));
  }
  return sink->write(0, *object.bytes);
}

Result<std::vector<ObjectInfo>> MemoryStore::list(std::string_view prefix,
                                                  std::string_view start_after, size_t limit) {
  DW_RETURN_IF_ERROR(check_object_prefix(prefix));
  limit = std::min(limit, kMaxListed);
  const std::lock_guard lock(mutex_);
  std::vector<ObjectInfo> found;
  auto at = start_after < prefix ? objects_.lower_bound(prefix) : objects_.upper_bound(start_after);
  for (; at != objects_.end() && at->first.starts_with(prefix) && found.size() < limit; ++at) {
    found.push_back({at->first, at->second.bytes->size(), at->second.modified});
  }
  return found;
}

Status MemoryStore::remove(std::string_view name) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(name);
  if (found != objects_.end()) objects_.erase(found);
  return {};
}

}  // namespace deltawire
