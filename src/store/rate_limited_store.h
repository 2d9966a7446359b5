// Moves no more bytes per second than it may, both ways and all threads together.
#pragma once

#include <map>
#include <mutex>

#include "store/forwarding_store.h"

namespace deltawire {

// Tokens are bytes; the bucket holds a tenth of a second's. Thread-safe.
class TokenBucket {
 public:
  TokenBucket(uint64_t bytes_per_second, StoreClock clock);
  // Takes the tokens, and sleeps until they are available.
  void take(uint64_t bytes);

 private:
  const double rate_;
  const StoreClock clock_;
  std::mutex mutex_;
  double empty_until_;
};

// How often the inner store reads each byte of a body: twice if it computes a checksum first. Only
// the last read counts.
enum class BodyReads { kOnce, kTwice };

// Has no local folder, because reads from there would bypass the limit.
class RateLimitedStore final : public ForwardingStore {
 public:
  RateLimitedStore(std::shared_ptr<Store> inner, uint64_t bytes_per_second,
                   BodyReads reads = BodyReads::kOnce, StoreClock clock = real_clock());

  std::string local_folder() const override { return {}; }
  Status put(std::string_view name, const Body& body) override;
  Status put_if_absent(std::string_view name, const Body& body) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;

 private:
  TokenBucket bucket_;
  const BodyReads reads_;
};

}  // namespace deltawire
