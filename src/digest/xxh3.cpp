#include "digest/xxh3.h"

namespace deltawire {
namespace {

struct Functions {
  XXH128_hash_t (*whole)(const void*, size_t);
  void (*update)(XXH3_state_t*, const void*, size_t);
};

Functions choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) {
    return {deltawire_xxh3_128_avx512, deltawire_xxh3_update_avx512};
  }
  if (__builtin_cpu_supports("avx2")) return {deltawire_xxh3_128_avx2, deltawire_xxh3_update_avx2};
#endif
  return {[](const void* data, size_t size) { return XXH3_128bits(data, size); },
          [](XXH3_state_t* state, const void* data, size_t size) {
            XXH3_128bits_update(state, data, size);
          }};
}

const Functions& best() {
  static const Functions kBest = choose();
  return kBest;
}

}  // namespace

XXH128_hash_t xxh3_128(const void* data, size_t size) noexcept { return best().whole(data, size); }

void xxh3_update(XXH3_state_t* state, const void* data, size_t size) noexcept {
  best().update(state, data, size);
}

}  // namespace deltawire
