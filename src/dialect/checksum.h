// Checksums of tensors in other projects' files. Chains use sum128 instead (deltawire/digest.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "deltawire/status.h"

namespace deltawire {

enum class ChecksumKind : uint8_t { kXxh3_128, kBlake3, kAdler32 };

std::string_view checksum_name(ChecksumKind kind) noexcept;  // "xxh3-128", "blake3", "adler32"
std::optional<ChecksumKind> parse_checksum_kind(std::string_view name) noexcept;
// Unsupported if this build lacks the checksum: blake3 is optional.
Status check_available(ChecksumKind kind);

struct Checksum {
  ChecksumKind kind = ChecksumKind::kXxh3_128;
  std::string hex;  // lower case, high byte first

  bool operator==(const Checksum&) const = default;
};

// Corruption unless `hex` has the length and the digits of this kind.
Result<Checksum> parse_checksum(ChecksumKind kind, std::string_view hex);

// Takes the bytes in order, in pieces of any size. Call finish() once. The kind must be available.
class Checksummer {
 public:
  explicit Checksummer(ChecksumKind kind);
  ~Checksummer();

  void update(Bytes bytes);
  Checksum finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Checksum checksum_of(ChecksumKind kind, Bytes bytes);

}  // namespace deltawire
