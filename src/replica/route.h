// The way to a version, as replicas of every kind go it: planned, checked, and planned again around
// parts that are damaged or gone.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "chain/plan.h"
#include "deltawire/replica.h"
#include "replica/forward.h"
#include "replica/tensors.h"

namespace deltawire {

struct Route {
  VersionRecord record;  // of the target
  Schema schema;
  std::vector<Hop> hops;    // from the last version on that is stored whole
  bool from_whole = false;  // the first hop is a checkpoint: what is held is of no use

  Target target() const { return {record.manifest, schema}; }
};

// `seen`: a record that was read just now and may be the target's. `avoid`: parts that are not to
// be used. What the target says of itself is checked, the size of the hops is not. Notes in
// `report` where the way leads and what it costs. Corruption when what is held is of another
// history than the chain; BaseMismatch when the goal names the version, for then it is left.
Result<Route> plan_route(const Chain& chain, const std::optional<Held>& held,
                         const AttemptGoal& goal, const std::optional<VersionRecord>& seen,
                         const std::set<std::string>& avoid, PullReport* report);

struct Attempted {
  Status status;
  std::optional<std::string> bad_part;  // damaged or gone: why it failed
};

// Attempts again without the bad part as long as another way leads to the version. What was wrong
// in the store first is the error if none does, and else the report's reason for a repair.
// `repair`: false: the first bad part is an error. `place`: of the replica, for the log.
Status go_around_bad_parts(bool repair, const std::string& place, PullReport* report,
                           const std::function<Attempted(const std::set<std::string>&)>& attempt);

}  // namespace deltawire
