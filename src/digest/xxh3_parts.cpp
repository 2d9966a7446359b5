#include "digest/xxh3_parts.h"

#define XXH_STATIC_LINKING_ONLY  // for the generator of secrets
#include <xxhash.h>

namespace deltawire::xxh3 {
namespace {

// Where keys lie in the secret that do not begin at a word.
constexpr size_t kLastStripeKey = 121, kLowKey = 11, kHighKey = 117;

const uint8_t* secret_bytes() { return reinterpret_cast<const uint8_t*>(secret().data()); }

void add_stripe_with(const uint8_t* stripe, const uint8_t* key, Lanes* lanes) {
  for (size_t i = 0; i < kLanes; ++i) {
    const uint64_t word = load_le<uint64_t>(stripe + 8 * i);
    (*lanes)[i ^ 1] += word;
    (*lanes)[i] += folded(word, load_le<uint64_t>(key + 8 * i));
  }
}

uint64_t folded_product(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return uint64_t(product) ^ uint64_t(product >> 64);
}

uint64_t merged(const Lanes& lanes, const uint8_t* key, uint64_t sum) {
  for (size_t i = 0; i < kLanes; i += 2) {
    sum += folded_product(lanes[i] ^ load_le<uint64_t>(key + 8 * i),
                          lanes[i + 1] ^ load_le<uint64_t>(key + 8 * i + 8));
  }
  sum ^= sum >> 37;
  sum *= 0x165667919e3779f9;
  return sum ^ sum >> 32;
}

}  // namespace

const Secret& secret() noexcept {
  static const Secret kSecret = [] {
    Secret made;
    static_assert(sizeof made == XXH3_SECRET_DEFAULT_SIZE);
    XXH3_generateSecret_fromSeed(made.data(), 0);  // of no seed: the default
    return made;
  }();
  return kSecret;
}

void add_stripe(const uint8_t* stripe, size_t n, Lanes* lanes) noexcept {
  add_stripe_with(stripe, secret_bytes() + 8 * n, lanes);
}

Digest finish(const Lanes& chained, Bytes last, uint64_t size_bytes) {
  if (size_bytes <= kShortBytes) return digest_of(DigestKind::kXxh3_128, last);
  Lanes lanes = chained;
  const size_t rest = size_bytes - num_blocks(size_bytes) * kBlockBytes;
  const uint8_t* const end = last.data() + last.size();
  for (size_t n = 0; n < (rest - 1) / kStripeBytes; ++n) {
    add_stripe(end - rest + n * kStripeBytes, n, &lanes);
  }
  add_stripe_with(end - kStripeBytes, secret_bytes() + kLastStripeKey, &lanes);

  const uint64_t low = merged(lanes, secret_bytes() + kLowKey, size_bytes * kPrime64_1);
  const uint64_t high = merged(lanes, secret_bytes() + kHighKey, ~(size_bytes * kPrime64_2));
  Digest digest{DigestKind::kXxh3_128, uint8_t(digest_size(DigestKind::kXxh3_128)), {}};
  for (size_t i = 0; i < 8; ++i) {
    digest.bytes[i] = uint8_t(high >> (56 - 8 * i));
    digest.bytes[8 + i] = uint8_t(low >> (56 - 8 * i));
  }
  return digest;
}

}  // namespace deltawire::xxh3
