// Tensors whose bytes are made on their way, piece by piece, wherever they are asked for: master
// weights in the host's memory that are published in a narrower dtype, and what the caller makes.
// There is never a rounded copy of a model.
#pragma once

#include <memory>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "deltawire/publisher.h"
#include "deltawire/store.h"

namespace deltawire {

// Floats (F64, F32, F16, BF16) as BF16, F16 or F32; what torch's `.to()` gives on the CPU, in
// integers: to nearest even, F64 by way of F32, and a NaN is one quiet NaN.
bool can_round(DType from, DType to);

// Whether what is published is not there as bytes: the caller makes it, or the tensor is on the
// host and of another dtype.
bool is_computed(const PublishTensor& tensor);

// The tensor's bytes as they are published, from `offset` on. On the host.
Status read_published(const PublishTensor& tensor, uint64_t offset, MutableBytes out);
Result<Digest> published_digest(const PublishTensor& tensor);
// The same as something to put into a store, for as long as the tensor's bytes stay.
std::shared_ptr<const Body> published_body(const PublishTensor& tensor);

}  // namespace deltawire
