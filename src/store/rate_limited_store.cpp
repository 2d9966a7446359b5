#include "store/rate_limited_store.h"

#include <algorithm>

#include "base/byte_ranges.h"

namespace deltawire {
namespace {

constexpr double kBurstSeconds = 0.1;

class LimitedBody final : public Body {
 public:
  LimitedBody(const Body& inner, BodyReads reads, TokenBucket* bucket)
      : inner_(inner), reads_(reads), bucket_(bucket) {}
  uint64_t size() const noexcept override { return inner_.size(); }
  Status read(uint64_t offset, std::span<uint8_t> out) const override {
    bucket_->take(reads_ == BodyReads::kOnce ? out.size() : seen_before(offset, out.size()));
    return inner_.read(offset, out);
  }

 private:
  uint64_t seen_before(uint64_t offset, uint64_t size) const {
    const std::lock_guard lock(mutex_);
    return seen_.add(offset, offset + size);
  }

  const Body& inner_;
  const BodyReads reads_;
  TokenBucket* const bucket_;
  mutable std::mutex mutex_;
  mutable ByteRanges seen_;
};

// Waits before passing the bytes on, so that TCP slows the sender down.
class LimitedSink final : public Sink {
 public:
  LimitedSink(Sink* inner, TokenBucket* bucket) : inner_(inner), bucket_(bucket) {}
  Status write(uint64_t offset, std::span<const uint8_t> bytes) override {
    bucket_->take(bytes.size());
    return inner_->write(offset, bytes);
  }

 private:
  Sink* const inner_;
  TokenBucket* const bucket_;
};

}  // namespace

TokenBucket::TokenBucket(uint64_t bytes_per_second, StoreClock clock)
    : rate_(double(bytes_per_second)), clock_(std::move(clock)), empty_until_(clock_.now()) {}

void TokenBucket::take(uint64_t bytes) {
  if (bytes == 0) return;
  double wait;
  {
    const std::lock_guard lock(mutex_);
    const double now = clock_.now();
    // An idle bucket fills up to its capacity only.
    empty_until_ = std::max(empty_until_, now - kBurstSeconds) + double(bytes) / rate_;
    wait = empty_until_ - now;
  }
  if (wait > 0) clock_.sleep(wait);
}

RateLimitedStore::RateLimitedStore(std::shared_ptr<Store> inner, uint64_t bytes_per_second,
                                   BodyReads reads, StoreClock clock)
    : ForwardingStore(std::move(inner)),
      bucket_(bytes_per_second, std::move(clock)),
      reads_(reads) {}

Status RateLimitedStore::put(std::string_view name, const Body& body) {
  return inner().put(name, LimitedBody(body, reads_, &bucket_));
}

Status RateLimitedStore::put_if_absent(std::string_view name, const Body& body) {
  return inner().put_if_absent(name, LimitedBody(body, reads_, &bucket_));
}

Result<std::string> RateLimitedStore::get(std::string_view name, uint64_t max_bytes) {
  Result<std::string> text = inner().get(name, max_bytes);
  if (text.ok()) bucket_.take(text->size());
  return text;
}

Status RateLimitedStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  DW_RETURN_IF_ERROR(inner().read(name, offset, out));
  bucket_.take(out.size());
  return {};
}

Status RateLimitedStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  LimitedSink limited(sink, &bucket_);
  return inner().download(name, size_bytes, &limited);
}

}  // namespace deltawire
