// Digests: sum128 of tensors, by which two sides prove that they hold the same weights; sha-256 of
// objects; xxh3-128 of states and payloads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "deltawire/status.h"

namespace deltawire {

enum class DigestKind : uint8_t { kXxh3_128, kSha256, kSum128 };

std::string_view digest_name(DigestKind kind) noexcept;  // "sum128"
size_t digest_size(DigestKind kind) noexcept;            // in bytes

// A finished digest; its bytes are in the order its hex form is written in (xxh3: high half first;
// sum128: each half low byte first).
struct Digest {
  DigestKind kind = DigestKind::kXxh3_128;
  uint8_t size = 0;
  std::array<uint8_t, 32> bytes{};

  std::string hex() const;
  bool operator==(const Digest&) const = default;
};

Result<Digest> parse_digest(DigestKind kind, std::string_view hex);

// Feeds bytes in any pieces; finish() may be called once.
class Hasher {
 public:
  explicit Hasher(DigestKind kind);
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void update(std::span<const uint8_t> bytes);
  void update(std::string_view text);
  // sum128 only: bytes at their place, in any order, from any thread. A hasher is fed by this
  // function alone, or by the others alone; every byte comes once before finish().
  void update_at(std::span<const uint8_t> bytes, uint64_t offset);
  Digest finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Digest digest_of(DigestKind kind, std::span<const uint8_t> bytes);

}  // namespace deltawire
