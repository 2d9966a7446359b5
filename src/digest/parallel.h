// sum128 with all threads on one array.
#pragma once

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"

namespace deltawire {

Digest sum128_of(Bytes bytes, ThreadPool* pool);

// The sums of bytes at `offset` of their tensor.
Sums sums_of(Bytes bytes, uint64_t offset, ThreadPool* pool);

// Feeds a sum128 hasher that has seen nothing yet.
void update_all(Hasher* hasher, Bytes bytes, ThreadPool* pool);

}  // namespace deltawire
