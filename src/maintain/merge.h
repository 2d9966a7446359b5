// Several deltas in a row as one, without the weights they apply to.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "delta/delta_reader.h"
#include "format/schema.h"
#include "transfer/part_stream.h"

namespace deltawire {

// Whether deltas that were asked for with this codec say what elements become: only then is it
// worth to look. "auto" nearly never does.
bool carries_values(const std::string& codec);

// Whether the entries say what elements become, whatever they were: then what came later wins. True
// of every codec but those that carry differences (tight, adaptive), as long as the boxes
// of a tensor are the same in all deltas.
bool can_merge_alone(std::span<const Delta> hops);

struct MergeResult {
  uint64_t num_changed = 0;
  std::vector<std::string> removed;
};

// Adds to `stream` what the hops, first to last, make of a state of schema `base`. An element that
// changed and changed back is carried like one that changed.
Result<MergeResult> merge_alone(std::span<const Delta> hops, const Schema& base, ThreadPool* pool,
                                PartStream* stream);

}  // namespace deltawire
