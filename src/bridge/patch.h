// From the tensors of one version and a foreign version to the tensors of the next.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "bridge/scratch.h"
#include "deltawire/checkpoint.h"
#include "deltawire/progress.h"
#include "deltawire/publisher.h"
#include "dialect/dialect.h"

namespace deltawire {

// Whether the version can be applied to this checkpoint, by names and forms alone. BaseMismatch
// names the tensor, both forms and the way out.
Status check_fits(const ForeignInfo& info, const Checkpoint& old);

// All tensors of the next state: those that the version names are made in `scratch`, the others are
// the old ones, and said to be unchanged. Nothing is written to `old`. What the version's digests
// say was compared, and its files were still what they had been.
Result<std::vector<PublishTensor>> patch_tensors(const ForeignVersion& version,
                                                 const Checkpoint& old, Scratch* scratch,
                                                 ThreadPool* pool, const Progress& progress);
// The tensors of a version that is whole.
Result<std::vector<PublishTensor>> whole_tensors(const ForeignVersion& version, Scratch* scratch,
                                                 ThreadPool* pool, const Progress& progress);

// Only whether it would work: tensor by tensor, nothing is kept.
Status try_patch(const ForeignVersion& version, const Checkpoint& old, ThreadPool* pool,
                 const Progress& progress);

}  // namespace deltawire
