// Compaction: merged deltas that span several versions, so that a late replica pays one instead of
// many. Needs nothing but the chain.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/store.h"
#include "maintain/chain_state.h"

namespace deltawire {

struct CompactOptions {
  std::vector<uint64_t> spans = {4, 16, 64};  // merged deltas begin and end at multiples of these
  uint64_t from = 0;
  std::optional<uint64_t> upto;  // none: the head
  std::string codec = "auto";    // where weights are at hand
  uint64_t part_bytes = uint64_t{64} << 20;
  uint64_t memory_limit = uint64_t{2} << 30;
  WorkOptions work;
};

struct MergedDelta {
  uint64_t base = 0, version = 0;
  uint64_t bytes = 0;           // of it
  uint64_t separate_bytes = 0;  // of the versions that it spans
  bool made = false;
  bool alone = false;   // from the deltas alone: no state was needed
  std::string skipped;  // why it was not made
  double seconds = 0;
};

struct CompactReport {
  std::string run;
  std::vector<MergedDelta> merged;  // made or skipped, in order; not those that were there before
  uint64_t num_there = 0;           // those
  double seconds = 0;
};

// Shorter spans first: they make the way for the longer ones. What was made before a failure stays.
Result<CompactReport> compact_chain(std::shared_ptr<Store> store, const CompactOptions& options);

}  // namespace deltawire
