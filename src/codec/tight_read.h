// Payloads of `tight`: applied to the old array, or as absolute changes.
#pragma once

#include "codec/codec.h"
#include "digest/shared_sums.h"

namespace deltawire::tight {

// `patched`, unless null, is fed the new array. Payloads are not empty.
Status apply_payload(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool,
                     Hasher* patched);
// `sums`, unless null, get those of the old array.
Result<Changes> decode_payload(Layout layout, Bytes payload, Bytes old_bytes, ThreadPool* pool,
                               SharedSums* sums);

}  // namespace deltawire::tight
