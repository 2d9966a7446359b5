// What an array's digest will be once changes are written into it, without writing them.
#pragma once

#include <span>

#include "base/bytes.h"
#include "deltawire/digest.h"

namespace deltawire {

// Elements of an array and their new values; positions ascend and lie inside it.
struct ChangeSpan {
  std::span<const uint64_t> positions;
  Bytes values;
};

struct BothDigests {
  Digest before, after;
};

// One pass over `bytes`, through a buffer that fits the cache. The array is
// `[first, first + bytes.size() / width)` of the one that positions count in.
BothDigests digests_around(DigestKind kind, unsigned width, Bytes bytes, uint64_t first,
                           const ChangeSpan& changes);

}  // namespace deltawire
