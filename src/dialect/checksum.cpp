#include "dialect/checksum.h"

#include <xxhash.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"

#ifdef DELTAWIRE_HAVE_BLAKE3
#include <blake3.h>
#endif

namespace deltawire {
namespace {

struct KindInfo {
  std::string_view name;
  size_t size;
};

constexpr KindInfo kKinds[] = {{"xxh3-128", 16}, {"blake3", 32}, {"adler32", 4}};

// Seed 1, as peers write it. Sums are reduced every 5552 bytes, the most that cannot overflow 32
// bits.
struct Adler32 {
  uint32_t a = 1, b = 0;
  void update(Bytes bytes) {
    constexpr uint32_t kMod = 65521;
    for (size_t at = 0; at < bytes.size();) {
      const size_t end = std::min(bytes.size(), at + 5552);
      for (; at < end; ++at) b += a += bytes[at];
      a %= kMod;
      b %= kMod;
    }
  }
};

}  // namespace

std::string_view checksum_name(ChecksumKind kind) noexcept { return kKinds[size_t(kind)].name; }

std::optional<ChecksumKind> parse_checksum_kind(std::string_view name) noexcept {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (kKinds[i].name == name) return ChecksumKind(i);
  }
  return std::nullopt;
}

Status check_available(ChecksumKind kind) {
#ifndef DELTAWIRE_HAVE_BLAKE3
  if (kind == ChecksumKind::kBlake3) return unsupported("this build has no blake3");
#endif
  (void)kind;
  return {};
}

Result<Checksum> parse_checksum(ChecksumKind kind, std::string_view hex) {
  const size_t digits = 2 * kKinds[size_t(kind)].size;
  if (hex.size() != digits) {
    return corruption("a " + std::string(checksum_name(kind)) + " digest has " +
                      std::to_string(digits) + " hex digits, got " + std::to_string(hex.size()));
  }
  if (!is_hex(hex)) return corruption("a digest is not lower-case hex");
  return Checksum{kind, std::string(hex)};
}

struct Checksummer::Impl {
  ChecksumKind kind;
  XXH3_state_t* xxh3 = nullptr;
  Adler32 adler;
#ifdef DELTAWIRE_HAVE_BLAKE3
  blake3_hasher blake3;
#endif
  ~Impl() { XXH3_freeState(xxh3); }
};

Checksummer::Checksummer(ChecksumKind kind) : impl_(std::make_unique<Impl>()) {
  impl_->kind = kind;
  if (kind == ChecksumKind::kXxh3_128) {
    impl_->xxh3 = XXH3_createState();
    XXH3_128bits_reset(impl_->xxh3);
  }
#ifdef DELTAWIRE_HAVE_BLAKE3
  if (kind == ChecksumKind::kBlake3) blake3_hasher_init(&impl_->blake3);
#endif
}

Checksummer::~Checksummer() = default;

void Checksummer::update(Bytes bytes) {
  switch (impl_->kind) {
    case ChecksumKind::kXxh3_128:
      XXH3_128bits_update(impl_->xxh3, bytes.data(), bytes.size());
      break;
    case ChecksumKind::kBlake3:
#ifdef DELTAWIRE_HAVE_BLAKE3
      blake3_hasher_update(&impl_->blake3, bytes.data(), bytes.size());
#endif
      break;
    case ChecksumKind::kAdler32:
      impl_->adler.update(bytes);
      break;
  }
}

Checksum Checksummer::finish() {
  uint8_t bytes[32] = {};
  switch (impl_->kind) {
    case ChecksumKind::kXxh3_128: {
      XXH128_canonical_t canonical;
      XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(impl_->xxh3));
      std::copy_n(canonical.digest, sizeof canonical.digest, bytes);
      break;
    }
    case ChecksumKind::kBlake3:
#ifdef DELTAWIRE_HAVE_BLAKE3
      blake3_hasher_finalize(&impl_->blake3, bytes, sizeof bytes);
#endif
      break;
    case ChecksumKind::kAdler32: {
      const uint32_t halves[] = {impl_->adler.b, impl_->adler.a};
      for (size_t i = 0; i < 4; ++i) bytes[i] = uint8_t(halves[i / 2] >> (i % 2 == 0 ? 8 : 0));
      break;
    }
  }
  return {impl_->kind, to_hex(Bytes(bytes, kKinds[size_t(impl_->kind)].size))};
}

Checksum checksum_of(ChecksumKind kind, Bytes bytes) {
  Checksummer checksummer(kind);
  checksummer.update(bytes);
  return checksummer.finish();
}

}  // namespace deltawire
