// Computes sum128 of one array on all threads.
#pragma once

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"

namespace deltawire {

Digest sum128_of(Bytes bytes, ThreadPool* pool);

// The sums of bytes at `offset` of their tensor.
Sums sums_of(Bytes bytes, uint64_t offset, ThreadPool* pool);

// Feeds a sum128 hasher that has had no bytes yet.
void update_all(Hasher* hasher, Bytes bytes, ThreadPool* pool);

}  // namespace deltawire
