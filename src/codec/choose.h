// `auto`: the smallest encoding of one array.
#pragma once

#include <optional>

#include "codec/codec.h"

namespace deltawire {

struct Choice {
  CodecId codec = CodecId::kRaw;
  Encoded encoded;
};

// Whether another codec could make less of an array than `tight` has: here and on a GPU, so that
// both choose alike.
bool gaps_may_be_smaller(uint64_t num_changed, uint64_t tight_bytes, Layout layout) noexcept;
bool adaptive_may_be_smaller(uint64_t num_changed, Layout layout) noexcept;

// `tight` nearly always wins. The others are tried only where counts say that they could: plain
// gaps for a handful of changes, `adaptive` for few of them or packed codes, `raw` when a delta
// would not pay.
Result<Choice> encode_smallest(Layout layout, Bytes old_bytes, Bytes new_bytes, ThreadPool* pool);
// The same, feeding `hashers` as Codec::encode_hashed does.
Result<Choice> encode_smallest_hashed(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                      const Hashers& hashers, ThreadPool* pool);

// An array that the receiver has nothing of: `exponents`, or `raw` where that is no smaller or is
// asked for.
Result<Choice> encode_whole_array(Layout layout, Bytes array, bool raw, ThreadPool* pool);

// The same of arrays that others may write to. None: another codec than `tight` may do better,
// or there are too few blocks to be worth it; what hashers and sums were fed is then of no use.
// Make a copy of all and encode that.
Result<std::optional<Encoded>> encode_changing(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                               const Hashers& hashers,
                                               const ChangingArrays& changing, bool only_tight,
                                               ThreadPool* pool);

}  // namespace deltawire
