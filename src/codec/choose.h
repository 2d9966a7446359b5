// `auto`: the smallest encoding of one array.
#pragma once

#include "codec/codec.h"

namespace deltawire {

struct Choice {
  CodecId codec = CodecId::kRaw;
  Encoded encoded;
};

// `tight` nearly always wins. The others are tried only where counts say that they could: plain
// gaps for a handful of changes, zstd where `tight` saves little, `raw` when a delta would not pay.
Result<Choice> encode_smallest(Layout layout, Bytes old_bytes, Bytes new_bytes, ThreadPool* pool);
// The same, feeding `hashers` as Codec::encode_hashed does.
Result<Choice> encode_smallest_hashed(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                      const Hashers& hashers, ThreadPool* pool);

}  // namespace deltawire
