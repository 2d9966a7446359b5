// Arrays in pinned host memory, brought to the device in batches while the batch before is worked
// on.
#pragma once

#include <functional>

#include "sync/cuda/context.h"

namespace deltawire::cuda {

// Calls encode(first, pairs) for one batch of `pairs` after the other, in order; its old arrays are
// on the device then, or where they were if they are too large for half of the staging room, or so
// small that they are coded by the host. encode() waits for its work.
Status for_each_staged(
    Context::Impl& impl, std::span<const DevicePair> pairs, Stream stream,
    const std::function<Status(size_t first, std::span<const DevicePair> batch)>& encode);

}  // namespace deltawire::cuda
