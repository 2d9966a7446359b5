// A tensor that replicas have nothing of, in a delta.
#pragma once

#include "base/thread_pool.h"
#include "delta/encode_items.h"
#include "transfer/part_stream.h"

namespace deltawire {

// Its payload, whose codec goes to `entry`. `stream`: it is made while it is put, from a body that
// reads the tensor block by block; else it is made now.
Result<Payload> new_tensor_payload(const EncodeItem& item, const std::string& codec, bool stream,
                                   ThreadPool* pool, DeltaEntry* entry);

}  // namespace deltawire
