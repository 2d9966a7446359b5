// xxh3-128 of a whole array, with the widest vectors the machine has: Debian's library is built for
// the plainest x86-64, where it takes twice as long.
#pragma once

#include <stddef.h>
#include <xxhash.h>

#ifdef __cplusplus
namespace deltawire {
XXH128_hash_t xxh3_128(const void* data, size_t size) noexcept;
}
extern "C" {
#endif
// Compiled in C, each for its instruction set; called only where that runs.
XXH128_hash_t deltawire_xxh3_128_avx2(const void* data, size_t size);
XXH128_hash_t deltawire_xxh3_128_avx512(const void* data, size_t size);
#ifdef __cplusplus
}
#endif
