#include "base/xxh3.h"

namespace deltawire {
namespace {

using Hash = XXH128_hash_t (*)(const void*, size_t);

Hash best() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return deltawire_xxh3_128_avx512;
  if (__builtin_cpu_supports("avx2")) return deltawire_xxh3_128_avx2;
#endif
  return [](const void* data, size_t size) { return XXH3_128bits(data, size); };
}

}  // namespace

XXH128_hash_t xxh3_128(const void* data, size_t size) noexcept {
  static const Hash kHash = best();
  return kHash(data, size);
}

}  // namespace deltawire
