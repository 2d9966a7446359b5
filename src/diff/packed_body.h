// A safetensors file, packed on its way to the store: planned once, coded as it is read, never
// held.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "delta/encode_items.h"
#include "deltawire/store.h"
#include "diff/coded_array.h"
#include "transfer/part_stream.h"

namespace deltawire {

// `plain` gives the same bytes however often it is read (StableBody), or fails. Reads it once. Null
// when packing does not pay.
// Tensors with coders are not read from it where they pay.
Result<std::shared_ptr<const Body>> pack_body(std::shared_ptr<const Body> plain, ThreadPool* pool,
                                              const CodedThere& there = {});

// A tensor that replicas have nothing of, in a delta.

// Its payload, whose codec goes to `entry`. `stream`: it is made while it is put, from a body that
// reads the tensor block by block; else it is made now.
Result<Payload> new_tensor_payload(const EncodeItem& item, const std::string& codec, bool stream,
                                   ThreadPool* pool, DeltaEntry* entry);

}  // namespace deltawire
