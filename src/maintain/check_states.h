// Whether the versions of a chain are what their manifests say: every one is decoded. The check of
// records and objects, chain/fsck.h, comes before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "maintain/walk_parts.h"

namespace deltawire {

struct StateCheckReport {
  uint64_t num_versions = 0, num_hops = 0;  // that were decoded, and are right
  std::vector<std::string> problems;        // naming version and tensor
};

// Walks from every version that is stored whole along the deltas, and compares the digest of each
// tensor that a step touches with the manifest's; anchors and merged deltas likewise. Objects that
// are missing or damaged are the business of fsck: what rests on them is passed over here, and
// said. Fails only when the store does.
//
// Holds one state of the model and one file: in memory, or, with `options.folder`, in files there.
Result<StateCheckReport> check_states(const Chain& chain, const WorkOptions& options);

}  // namespace deltawire
