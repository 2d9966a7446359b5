// The digest that a manifest has of a tensor.
#pragma once

#include "base/bytes.h"
#include "format/manifest.h"

namespace deltawire {

// Of a box's contents, where they lie in the tensor: nothing is copied.
Digest box_digest(DType dtype, const Shape& shape, Bytes tensor, const Box& box);

// Of a tensor in one piece; `boxes` are those that the manifest's digest is made of (boxes_hashed),
// or null. Their digests are computed, not read.
Digest tensor_digest(DType dtype, const Shape& shape, Bytes bytes,
                     const std::vector<BoxDigest>* boxes);

}  // namespace deltawire
