#include "store/forwarding_store.h"

#include <utility>

#include "store/bodies.h"

namespace deltawire {

// What is replaced or withdrawn ends without the mutex: it may be Python's.
void OverlayStore::offer(std::string name, std::shared_ptr<const Body> body) {
  const std::lock_guard lock(mutex_);
  std::swap(offered_[std::move(name)], body);
}

void OverlayStore::withdraw(std::string_view name) {
  decltype(offered_)::node_type old;
  const std::lock_guard lock(mutex_);
  const auto found = offered_.find(name);
  if (found != offered_.end()) old = offered_.extract(found);
}

void OverlayStore::withdraw_all() {
  decltype(offered_) old;
  const std::lock_guard lock(mutex_);
  old.swap(offered_);
}

std::shared_ptr<const Body> OverlayStore::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = offered_.find(name);
  return found == offered_.end() ? nullptr : found->second;
}

Result<ObjectInfo> OverlayStore::stat(std::string_view name) {
  const std::shared_ptr<const Body> body = find(name);
  if (!body) return inner().stat(name);
  return ObjectInfo{std::string(name), body->size(), 0};
}

Result<std::string> OverlayStore::get(std::string_view name, uint64_t max_bytes) {
  const std::shared_ptr<const Body> body = find(name);
  if (!body || body->size() > max_bytes) return inner().get(name, max_bytes);
  return text_of_body(*body);
}

Status OverlayStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  const std::shared_ptr<const Body> body = find(name);
  if (!body) return inner().read(name, offset, out);
  if (offset > body->size() || out.size() > body->size() - offset) {
    return corruption(url() + "/" + std::string(name) + ": ends at byte " +
                      std::to_string(body->size()));
  }
  return body->read(offset, out);
}

Status OverlayStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  const std::shared_ptr<const Body> body = find(name);
  if (!body || body->size() != size_bytes) return inner().download(name, size_bytes, sink);
  return copy_body(*body, sink);
}

}  // namespace deltawire
