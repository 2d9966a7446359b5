// Is this checkpoint what the delta was made from?
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "format/state_digest.h"

namespace deltawire {

// The digests of all tensors of a base, which are sorted by name, in their order. BaseMismatch,
// naming the tensor where that can be known, unless they are those that `delta` was made from.
// `place` is what messages call the base.
Result<std::vector<TensorState>> check_base(const std::string& place,
                                            std::span<const CheckpointTensor> tensors,
                                            const Delta& delta, ThreadPool* pool,
                                            const Progress& progress);

inline Result<std::vector<TensorState>> check_base(const Checkpoint& base, const Delta& delta,
                                                   ThreadPool* pool, const Progress& progress) {
  return check_base(base.path().string(), base.tensors(), delta, pool, progress);
}

}  // namespace deltawire
