// Is this checkpoint what the delta was made from?
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "format/state_digest.h"
#include "sync/delta/delta_reader.h"

namespace deltawire {

// The digests of all tensors of `base`, in its order. BaseMismatch, naming the tensor where that
// can be known, unless they are those that `delta` was made from.
Result<std::vector<TensorState>> check_base(const Checkpoint& base, const Delta& delta,
                                            ThreadPool* pool, const Progress& progress);

}  // namespace deltawire
