#include "ship/buckets.h"

#include <algorithm>
#include <chrono>

#include "base/guard.h"

namespace deltawire {
namespace {

// Read at a time, outside the lock: several objects are added at once.
constexpr uint64_t kBucketCopyBytes = uint64_t{1} << 20;

// Doubles as vectors do, but never beyond the limit.
void make_room(std::vector<uint8_t>* bytes, uint64_t more, uint64_t limit) {
  const uint64_t need = bytes->size() + more;
  if (need <= bytes->capacity()) return;
  bytes->reserve(size_t(std::max(need, std::min<uint64_t>(limit, 2 * bytes->capacity()))));
}

}  // namespace

Status BucketQueue::add(const ShipAttempt& of, const std::string& name, const Body& body) {
  return guard_memory("shipping", [&]() -> Status {
    std::vector<uint8_t> copy;
    for (uint64_t at = 0; at < body.size() || at == 0; at += copy.size()) {
      copy.resize(size_t(std::min(kBucketCopyBytes, body.size() - at)));
      DW_RETURN_IF_ERROR(body.read(at, copy));
      DW_RETURN_IF_ERROR(append(of, name, body.size(), at, copy));
      if (copy.empty()) break;
    }
    return {};
  });
}

Status BucketQueue::append(const ShipAttempt& of, const std::string& name, uint64_t object_bytes,
                           uint64_t offset, std::span<const uint8_t> bytes) {
  std::unique_lock lock(mutex_);
  do {
    // Nothing of the next version rides before the word that this one is committed.
    changed_.wait(lock, [&] {
      return closed_ || filling_.empty() ||
             (filling_.commits.empty() && filling_.of == of &&
              filling_.bytes.size() < limit_bytes_);
    });
    if (closed_) return {};
    filling_.of = of;
    const uint64_t count = std::min<uint64_t>(bytes.size(), limit_bytes_ - filling_.bytes.size());
    make_room(&filling_.bytes, count, limit_bytes_);
    filling_.bytes.insert(filling_.bytes.end(), bytes.begin(), bytes.begin() + ptrdiff_t(count));
    BucketPiece* const last = filling_.pieces.empty() ? nullptr : &filling_.pieces.back();
    if (last != nullptr && last->name == name && last->offset + last->length == offset) {
      last->length += count;
    } else {
      filling_.pieces.push_back({name, object_bytes, offset, count});
    }
    bytes = bytes.subspan(size_t(count));
    offset += count;
    changed_.notify_all();
  } while (!bytes.empty());
  return {};
}

void BucketQueue::commit(CommitWord word) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  filling_.commits.push_back(std::move(word));
  changed_.notify_all();
}

bool BucketQueue::take(Bucket* out) {
  std::unique_lock lock(mutex_);
  sending_ = false;
  changed_.notify_all();
  changed_.wait(lock, [&] { return closed_ || !filling_.empty(); });
  if (filling_.empty()) return false;
  out->bytes.clear();
  out->pieces.clear();
  out->commits.clear();
  std::swap(*out, filling_);
  sending_ = true;
  changed_.notify_all();
  return true;
}

void BucketQueue::set_limit(uint64_t limit_bytes) {
  const std::lock_guard lock(mutex_);
  limit_bytes_ = limit_bytes;
}

void BucketQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool BucketQueue::idle() const {
  const std::lock_guard lock(mutex_);
  return filling_.empty() && !sending_;
}

bool BucketQueue::wait_idle(double timeout_seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(timeout_seconds),
                           [&] { return closed_ || (filling_.empty() && !sending_); });
}

}  // namespace deltawire
