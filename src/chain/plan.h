// The cheapest plan from what a replica holds to a version.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chain/chain.h"

namespace deltawire {

// The version that a replica holds; the digest of its manifest ties it to the chain.
struct Held {
  uint64_t version = 0;
  Digest manifest;
};

// BaseMismatch: the chain's manifest of the held version is `digest`, and not the one held.
Status not_this_chain(const Chain& chain, const Held& held, const Digest& digest);

// Shortest path by bytes over versions, merged deltas and anchors (a hop also costs a little, so
// that ties go to the shorter path). Every link is checked: parent digests along single versions,
// the hop record's own along hops. `held` is none for a new replica; only anchors begin its path.
// What was pruned meanwhile or is damaged is avoided where that is possible. NotFound when the
// target is pruned or no path leads to it; Corruption when one would but for a damaged record;
// BaseMismatch when `held` is not of this chain (its manifest's digest differs): a caller may then
// plan again from nothing. Requests are bounded by the plan's length, not by the chain's.
//
// `avoid` has names of parts that are known to be damaged or missing; hops that need them are
// avoided like damaged records.
//
// What is looked at: all hops from the held version (or, from nothing, from the target's
// newest anchor) up to the target, unless they are very many; older anchors when those do not do.
// `record`: the target's, if the caller has read it from the chain just now; null: it is read.
Result<Plan> plan_catch_up(const Chain& chain, const std::optional<Held>& held, uint64_t target,
                           const VersionRecord* record = nullptr,
                           const std::set<std::string>& avoid = {});

}  // namespace deltawire
