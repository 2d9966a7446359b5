#include "ship/receiving_store.h"

#include <algorithm>

#include "chain/heartbeat.h"
#include "chain/names.h"

namespace deltawire {
namespace {

constexpr uint64_t kHeldPieceBytes = uint64_t{1} << 20;
constexpr size_t kMostReadBehind = 4096;

}  // namespace

ReceivingStore::ReceivingStore(std::shared_ptr<Receiver> receiver, std::shared_ptr<Store> behind)
    : receiver_(std::move(receiver)), remote_(receiver_), behind_(std::move(behind)) {}

template <class Call>
auto ReceivingStore::elsewhere(std::string_view name, const Call& call) {
  if (!behind_) return call(static_cast<Store&>(remote_));
  const auto status_of_result = [](const auto& result) {
    if constexpr (std::is_same_v<std::decay_t<decltype(result)>, Status>) {
      return result.code();
    } else {
      return result.status().code();
    }
  };
  if (attempt_folder(name)) {
    auto result = call(*behind_);
    if (status_of_result(result) == Code::kOk) return result;
    auto other = call(static_cast<Store&>(remote_));
    // The publisher is away: what the store behind says counts.
    return status_of_result(other) == Code::kUnavailable ? std::move(result) : std::move(other);
  }
  auto result = call(static_cast<Store&>(remote_));
  if (status_of_result(result) != Code::kUnavailable) return result;
  return call(*behind_);
}

bool ReceivingStore::was_read_behind(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (read_behind_.size() >= kMostReadBehind) read_behind_.clear();
  return !read_behind_.emplace(name).second;
}

Status ReceivingStore::put(std::string_view name, const Body& body) {
  Status status = remote_.put(name, body);
  if (status.code() != Code::kUnavailable || !behind_) return status;
  DW_RETURN_IF_ERROR(check_place_of_heartbeats(*behind_));  // nothing else is put
  return behind_->put(name, body);
}

Status ReceivingStore::put_if_absent(std::string_view name, const Body& body) {
  return remote_.put_if_absent(name, body);
}

Result<ObjectInfo> ReceivingStore::stat(std::string_view name) {
  return elsewhere(name, [&](Store& store) { return store.stat(name); });
}

Result<std::string> ReceivingStore::get(std::string_view name, uint64_t max_bytes) {
  const std::shared_ptr<const HeldObject> held = receiver_->held().find(name);
  if (held && held->size() <= max_bytes) {
    std::string text(size_t(held->size()), '\0');
    if (held->read(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}).ok()) return text;
  }
  return elsewhere(name, [&](Store& store) { return store.get(name, max_bytes); });
}

Status ReceivingStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  const std::shared_ptr<const HeldObject> held = receiver_->held().find(name);
  if (held && held->read(offset, out).ok()) return {};
  return elsewhere(name, [&](Store& store) { return store.read(name, offset, out); });
}

Status ReceivingStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  const std::shared_ptr<const HeldObject> held = receiver_->held().find(name);
  if (held && held->size() == size_bytes) {
    std::vector<uint8_t> piece;
    Status read;
    for (uint64_t at = 0; at < size_bytes && read.ok(); at += piece.size()) {
      piece.resize(size_t(std::min(kHeldPieceBytes, size_bytes - at)));
      read = held->read(at, piece);
      if (read.ok()) DW_RETURN_IF_ERROR(sink->write(at, piece));
    }
    if (read.ok()) return {};
  }
  if (behind_ && attempt_folder(name) && was_read_behind(name)) {
    Status status = remote_.download(name, size_bytes, sink);
    if (status.code() != Code::kUnavailable) return status;
  }
  return elsewhere(name, [&](Store& store) { return store.download(name, size_bytes, sink); });
}

Result<std::vector<ObjectInfo>> ReceivingStore::list(std::string_view prefix,
                                                     std::string_view start_after, size_t limit) {
  return elsewhere(prefix, [&](Store& store) { return store.list(prefix, start_after, limit); });
}

Status ReceivingStore::remove(std::string_view name) {
  receiver_->forget_beat(std::string(name));
  return remote_.remove(name);
}

}  // namespace deltawire
