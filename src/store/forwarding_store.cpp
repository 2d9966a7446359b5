#include "store/forwarding_store.h"

#include <algorithm>

namespace deltawire {
namespace {

constexpr uint64_t kOverlayPieceBytes = uint64_t{1} << 20;

}  // namespace

void OverlayStore::offer(std::string name, std::shared_ptr<const Body> body) {
  const std::lock_guard lock(mutex_);
  offered_.insert_or_assign(std::move(name), std::move(body));
}

void OverlayStore::withdraw_all() {
  const std::lock_guard lock(mutex_);
  offered_.clear();
}

std::shared_ptr<const Body> OverlayStore::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = offered_.find(name);
  return found == offered_.end() ? nullptr : found->second;
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
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < size_bytes; at += piece.size()) {
    piece.resize(size_t(std::min(kOverlayPieceBytes, size_bytes - at)));
    DW_RETURN_IF_ERROR(body->read(at, piece));
    DW_RETURN_IF_ERROR(sink->write(at, piece));
  }
  return {};
}

}  // namespace deltawire
