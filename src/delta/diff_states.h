// From two states, on disk or in memory, to the entries of a delta.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/delta.h"
#include "format/delta_part.h"

namespace deltawire {

// What the entries share, and the counts; `delta_bytes` and `num_parts` are the writer's to say.
struct DeltaSummary {
  DeltaInfo info;
  DiffReport report;
};

// Both states are sorted by name. Entries go to `add` in that order, from the calling thread.
Result<DeltaSummary> diff_states(
    std::span<const TensorView> old_state, std::span<const TensorView> new_state,
    const DiffOptions& options, const Progress& progress, ThreadPool* pool,
    const std::function<Status(DeltaEntry entry, std::vector<uint8_t> payload)>& add);

}  // namespace deltawire
