// Whether boxes of one tensor cover it, each element once.
#pragma once

#include <span>

#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Corruption for a box that leaves the tensor, for two that overlap and for a gap. Takes time in
// proportion to the boxes, which are untrusted; of very many bad ones it may not find out which two
// overlap.
Status check_cover(DType dtype, const Shape& shape, std::span<const Box* const> boxes);

}  // namespace deltawire
