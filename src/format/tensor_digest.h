// The digest that a manifest has of a tensor.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"
#include "format/manifest.h"
#include "tensor/box.h"

namespace deltawire {

// The digest of a box's contents, read from the tensor in place.
Digest box_digest(DType dtype, const Shape& shape, Bytes tensor, const Box& box);

// Of a tensor in one piece; `boxes` are those that the manifest's digest is made of (boxes_hashed),
// or null. Their digests are computed, not read.
Digest tensor_digest(DType dtype, const Shape& shape, Bytes bytes,
                     const std::vector<BoxDigest>* boxes);

// The contribution of a box to the sums of its tensor.

// Bytes of the box's contents, from `offset` of them on.
void add_contents(const BoxRows& rows, Bytes bytes, uint64_t offset, Sums* sums);

// All of them together. Neighbours first: what is added stays small until the end.
Sums added_up(std::vector<Sums> parts);

// All of the contents. Threads share a stretch of bytes, or rows.
Result<Sums> sums_of_box(const BoxRows& rows, Bytes contents, ThreadPool* pool);

}  // namespace deltawire
