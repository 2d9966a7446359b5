// What an array's digest will be once changes are written into it, without writing them.
#pragma once

#include <span>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"

namespace deltawire {

// Elements of an array and their new values; positions ascend and lie inside it.
struct ChangeSpan {
  std::span<const uint64_t> positions;
  Bytes values;
};

// Of an array, around its changes.
struct BothDigests {
  Digest before, after;
};

// sum128 of both: `bytes` are read once, and again where they change.
BothDigests digests_around(unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool);
// The same with sums of `bytes` that are known: they are read where they change.
BothDigests digests_around(Sums sums, unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool);

}  // namespace deltawire
