// Digests: sum128 of tensors, by which two sides prove that they hold the same weights; sha-256 of
// objects; xxh3-128 of states and payloads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

class Sums;

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
  void update_at(const Sums& sums);  // of bytes that were summed elsewhere
  Digest finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Digest digest_of(DigestKind kind, std::span<const uint8_t> bytes);

class Sums {
 public:
  // Bytes that lie at `offset` of their tensor. Cuts that are no multiples of eight bytes are
  // fine: a word that is cut is kept until its other bytes come, and takes space in to_string().
  void add(std::span<const uint8_t> bytes, uint64_t offset);
  // Adds the sums of other bytes of the same tensor.
  void add(const Sums& other);
  // Whole words of `num_bytes` in all that were summed elsewhere, in either lane. No bytes: words
  // that were added are now others, and these are their terms now, less those before.
  void add_lanes(const std::array<uint64_t, 2>& lanes, uint64_t num_bytes);

  // The tensor's digest, when each of its bytes was added once. InvalidArgument when their number
  // is wrong, and when a word that is cut has a byte twice or never. It cannot see that one whole
  // word came twice and another never: callers that add boxes must check first that they tile the
  // tensor (Proof).
  Result<Digest> finish(uint64_t size_bytes) const;
  uint64_t num_bytes() const noexcept { return num_bytes_; }

  // A text for other processes: hex digits, colons and commas.
  std::string to_string() const;
  static Result<Sums> parse(std::string_view text);

  bool operator==(const Sums&) const = default;

 private:
  // A word that is cut. Bytes that are not known are zero.
  struct Edge {
    uint64_t position = 0, word = 0;
    uint8_t known = 0;  // bit i: byte i
    bool operator==(const Edge&) const = default;
  };
  void add_edge(const Edge& edge);
  Edge joined(const Edge& a, const Edge& b);

  std::array<uint64_t, 2> lanes_{};
  uint64_t num_bytes_ = 0;
  std::vector<Edge> edges_;  // positions ascend
  bool twice_ = false;       // a byte of a cut word came twice
};

}  // namespace deltawire
