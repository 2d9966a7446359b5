// The codecs that registry.cpp lists, one function per file of this folder.
#pragma once

#include "codec/codec.h"

namespace deltawire {

const Codec& raw_codec() noexcept;
const Codec& gaps_codec() noexcept;
const Codec& tight_codec() noexcept;
const Codec& exponents_codec() noexcept;
const Codec& adaptive_codec() noexcept;

// `tight` of arrays of more than one block that others may write to. Payloads are
// those that tight_codec() would make of the copies.
Result<Encoded> encode_tight_unsteady(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                      const Hashers& hashers, const Unsteady& unsteady,
                                      ThreadPool* pool);

}  // namespace deltawire
