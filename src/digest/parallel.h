// Digests with all threads on one array, for kinds that add up. Others take one thread.
#pragma once

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"
#include "deltawire/sums.h"

namespace deltawire {

Digest digest_of(DigestKind kind, Bytes bytes, ThreadPool* pool);

// Of bytes that lie at `offset` of their tensor.
Sums sums_of(Bytes bytes, uint64_t offset, ThreadPool* pool);

// Feeds bytes [at, at + size). Kinds that do not add up get one stretch after the other.
void update_stretch(Hasher* hasher, Bytes bytes, size_t at, size_t size);
// Feeds a hasher that has seen nothing yet.
void update_all(Hasher* hasher, Bytes bytes, ThreadPool* pool);

}  // namespace deltawire
