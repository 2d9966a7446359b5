#include "ship/shipping_store.h"

#include "base/log.h"
#include "chain/names.h"
#include "deltawire/chain.h"
#include "format/manifest.h"
#include "store/bodies.h"

namespace deltawire {
namespace {

// An object that is in the store already: put there by another rank of the trainer.
class StoredBody final : public Body {
 public:
  StoredBody(Store& store, const PartRef& part) : store_(store), part_(part) {}
  uint64_t size() const noexcept override { return part_.size_bytes; }
  Status read(uint64_t offset, std::span<uint8_t> out) const override {
    return store_.read(part_.name, offset, out);
  }

 private:
  Store& store_;
  const PartRef& part_;
};

}  // namespace

ShippingStore::ShippingStore(std::shared_ptr<Store> inner, std::optional<uint64_t> head,
                             std::shared_ptr<BucketQueue> queue, Watcher watcher)
    : ForwardingStore(std::move(inner)),
      queue_(std::move(queue)),
      watcher_(std::move(watcher)),
      head_(head) {}

void ShippingStore::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

// Whoever holds a version needs its parts no more: anchors and merged deltas stay in the store.
void ShippingStore::send(std::string_view name, const Body& body) {
  const std::optional<AttemptFolder> folder = attempt_folder(name);
  if (!folder) return;
  ShipAttempt attempt{folder->version};
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || (head_ && folder->version <= *head_)) return;
    if (begun_ != folder->version) {
      begun_ = folder->version;
      ++num_attempts_;
      sent_.clear();
      watcher_.first_part(folder->version);
    }
    attempt.number = num_attempts_;
  }
  if (!watcher_.anybody()) return;
  // Not sent is not lost: replicas can read it.
  const Status status = queue_->add(attempt, std::string(name), body);
  if (!status.ok()) {
    log_event(LogLevel::kWarning, "ship.not_sent", {{"object", name}, {"error", status}});
    return;
  }
  const std::lock_guard lock(mutex_);
  sent_.emplace(name);
}

Status ShippingStore::put(std::string_view name, const Body& body) {
  const std::optional<uint64_t> version = version_of_manifest(name);
  if (!version) send(name, body);
  DW_RETURN_IF_ERROR(inner().put(name, body));
  if (version) commit(*version, body);
  return {};
}

Status ShippingStore::put_if_absent(std::string_view name, const Body& body) {
  Status status = inner().put_if_absent(name, body);
  const std::optional<uint64_t> version = version_of_manifest(name);
  if (!version) return status;
  // An answer may be lost, and the version be there: the publisher looks too, and goes on then.
  const Result<bool> there = status.ok() ? Result<bool>(true) : holds_body(inner(), name, body);
  if (there.ok() && *there) {
    commit(*version, body);
  } else {
    const std::lock_guard lock(mutex_);
    begun_.reset();
  }
  return status;
}

Status ShippingStore::remove(std::string_view name) {
  if (!name.starts_with(kPendingPrefix)) {
    const std::lock_guard lock(mutex_);
    if (sent_.contains(name)) begun_.reset();
  }
  return inner().remove(name);
}

void ShippingStore::commit(uint64_t version, const Body& manifest) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
  }
  const Result<std::string> text = text_of_body(manifest);
  if (!text.ok()) return;
  const Result<Manifest> parsed = parse_manifest(*text, {});
  if (!parsed.ok()) return;
  CommitWord word{parsed->run, version, parsed->parts};
  for (const SideFile& file : parsed->files) {
    PartRef object{object_of(file), file.size_bytes, file.sha256};
    const std::optional<AttemptFolder> folder = attempt_folder(object.name);
    if (folder && folder->version == version) word.parts.push_back(std::move(object));
  }
  // Parts of other ranks were put by other processes.
  for (const PartRef& part : word.parts) {
    bool sent = false;
    {
      const std::lock_guard lock(mutex_);
      sent = begun_ == version && sent_.contains(part.name);
    }
    if (!sent) send(part.name, StoredBody(inner(), part));
  }
  watcher_.committed({parsed->run, version, record_digest(*text).hex()});
  queue_->commit(std::move(word));
  const std::lock_guard lock(mutex_);
  head_ = head_ ? std::max(*head_, version) : version;
}

}  // namespace deltawire
