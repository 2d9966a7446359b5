#include "deltawire/digest.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"
#include "digest/sums.h"

namespace deltawire {
namespace {

struct KindInfo {
  std::string_view name;
  uint8_t size;
};

constexpr KindInfo kKinds[] = {{"xxh3-128", 16}, {"sha-256", 32}, {"sum128", 16}};

constexpr const KindInfo& info(DigestKind kind) { return kKinds[size_t(kind)]; }

}  // namespace

std::string_view digest_name(DigestKind kind) noexcept { return info(kind).name; }

size_t digest_size(DigestKind kind) noexcept { return info(kind).size; }

std::string Digest::hex() const { return to_hex(Bytes(bytes.data(), size)); }

Result<Digest> parse_digest(DigestKind kind, std::string_view hex) {
  Digest digest{kind, info(kind).size, {}};
  if (hex.size() != digest.size * 2U) {
    return corruption("a " + std::string(digest_name(kind)) + " digest has " +
                      std::to_string(digest.size * 2U) + " hex digits, got " +
                      std::to_string(hex.size()));
  }
  if (from_hex(hex, {digest.bytes.data(), digest.size})) return digest;
  return corruption("a digest is not lower-case hex");
}

struct Hasher::Impl {
  DigestKind kind;
  XXH3_state_t* xxh3 = nullptr;
  EVP_MD_CTX* sha256 = nullptr;
  SharedSums sums;
  ~Impl() {
    XXH3_freeState(xxh3);
    EVP_MD_CTX_free(sha256);
  }
};

Hasher::Hasher(DigestKind kind) : impl_(std::make_unique<Impl>()) {
  impl_->kind = kind;
  if (kind == DigestKind::kXxh3_128) {
    impl_->xxh3 = XXH3_createState();
    XXH3_128bits_reset(impl_->xxh3);
  } else if (kind == DigestKind::kSha256) {
    impl_->sha256 = EVP_MD_CTX_new();
    EVP_DigestInit_ex(impl_->sha256, EVP_sha256(), nullptr);
  }
}

Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(std::span<const uint8_t> bytes) {
  switch (impl_->kind) {
    case DigestKind::kXxh3_128:
      XXH3_128bits_update(impl_->xxh3, bytes.data(), bytes.size());
      break;
    case DigestKind::kSha256:
      EVP_DigestUpdate(impl_->sha256, bytes.data(), bytes.size());
      break;
    case DigestKind::kSum128:
      impl_->sums.add(bytes, impl_->sums.all().num_bytes());
      break;
  }
}

void Hasher::update(std::string_view text) { update(text_bytes(text)); }

void Hasher::update_at(std::span<const uint8_t> bytes, uint64_t offset) {
  impl_->sums.add(bytes, offset);
}

void Hasher::update_at(const Sums& sums) { impl_->sums.add(sums); }

Digest Hasher::finish() {
  Digest digest{impl_->kind, info(impl_->kind).size, {}};
  switch (impl_->kind) {
    case DigestKind::kXxh3_128: {
      XXH128_canonical_t canonical;
      XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(impl_->xxh3));
      std::copy_n(canonical.digest, digest.size, digest.bytes.begin());
      break;
    }
    case DigestKind::kSha256:
      EVP_DigestFinal_ex(impl_->sha256, digest.bytes.data(), nullptr);
      break;
    case DigestKind::kSum128: {
      const Sums& all = impl_->sums.all();
      return *all.finish(all.num_bytes());  // every byte came once
    }
  }
  return digest;
}

Digest digest_of(DigestKind kind, std::span<const uint8_t> bytes) {
  Hasher hasher(kind);
  hasher.update(bytes);
  return hasher.finish();
}

}  // namespace deltawire
