// xxh3-128 of an array, whole or in pieces, with the widest vectors the machine has: Debian's
// library is built for the plainest x86-64, where it takes twice as long.
#pragma once

#include <stddef.h>
#include <xxhash.h>

#ifdef __cplusplus
namespace deltawire {
XXH128_hash_t xxh3_128(const void* data, size_t size) noexcept;
// XXH3_128bits_update.
void xxh3_update(XXH3_state_t* state, const void* data, size_t size) noexcept;
}  // namespace deltawire
extern "C" {
#endif
// Compiled in C, each for its instruction set; called only where that runs.
XXH128_hash_t deltawire_xxh3_128_avx2(const void* data, size_t size);
XXH128_hash_t deltawire_xxh3_128_avx512(const void* data, size_t size);
void deltawire_xxh3_update_avx2(XXH3_state_t* state, const void* data, size_t size);
void deltawire_xxh3_update_avx512(XXH3_state_t* state, const void* data, size_t size);
#ifdef __cplusplus
}
#endif
