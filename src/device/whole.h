// Whole arrays of a device in `exponents`, for what streams them: planned once, then coded as many
// blocks at a time as somebody asks for.
#pragma once

#include <span>
#include <vector>

#include "base/bytes.h"
#include "codec/exponents.h"
#include "device/cuda.h"

namespace deltawire::cuda {

// Of every block of the array; a build without CUDA says Unsupported. Waits.
Result<std::vector<exponents::BlockPlan>> plan_whole_array(const Context& context,
                                                           const Contents& contents, Stream stream);
// Blocks from `first` on, as many as there are plans, one after the other, to `out`, which has
// their size. Io if the weights are not those that were planned. Waits.
Status code_whole_array(const Context& context, const Contents& contents, size_t first,
                        std::span<const exponents::BlockPlan> plans, MutableBytes out,
                        Stream stream);

}  // namespace deltawire::cuda
