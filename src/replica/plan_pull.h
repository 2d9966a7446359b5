// The plan of a pull, for replicas of every kind: made, checked, and made again around parts that
// are damaged or gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "chain/plan.h"
#include "deltawire/replica.h"
#include "deltawire/status.h"
#include "replica/tensors.h"

namespace deltawire {

// By which rule a replica moves when nobody names a version: forward, along one history.

// One try to get to a version.
struct AttemptGoal {
  uint64_t version = 0;
  bool from_nothing = false;  // what is held is of no use
  bool named = false;         // the version was asked for by its number
};

// Opens the chain that a replica reads. BaseMismatch unless it is of the run that was asked for;
// empty: any.
Result<Chain> open_chain(const std::shared_ptr<Store>& store, const Accept& accept);

// The newest version, seen from what is held. None: nothing was published yet; NotFound when the
// store does not even hold the run any more.
Result<Chain::Newest> find_newest(const Chain& chain, const std::optional<uint64_t>& held);

// Where `goal` leads from what is held, given the chain's head (not looked at when the goal names a
// version). Never below what is held unless the goal names a version: NotFound when the store has
// lost versions, or has none that is new enough.
Result<uint64_t> choose_version(const Chain& chain, const PullGoal& goal,
                                const std::optional<uint64_t>& head,
                                const std::optional<uint64_t>& held, uint64_t at_least);

// Corruption when the chain has another version under the held one's number, as far as that can
// still be seen: versions are written once, so somebody has rewritten the chain.
Status check_history(const Chain& chain, const Held& held);
// The same failure from a plan's BaseMismatch.
Status another_history(const Status& planned);

inline Target target_of(const Plan& plan) { return {plan.target.manifest, plan.schema}; }
// The first hop is a checkpoint: what is held is of no use.
inline bool from_whole(const Plan& plan) { return !plan.hops.empty() && !plan.hops[0].base; }

// The plan's hops are those from the last version on that is stored whole.
// `seen`: a record that was read just now and may be the target's. `avoid`: parts that are not to
// be used. What the target says of itself is checked, the size of the hops is not. Notes in
// `report` where it leads and what it costs. Corruption when what is held is of another
// history than the chain; BaseMismatch when the goal names the version, for then it is left.
Result<Plan> plan_pull(const Chain& chain, const std::optional<Held>& held, const AttemptGoal& goal,
                       const std::optional<VersionRecord>& seen, const std::set<std::string>& avoid,
                       PullReport* report);

// Logs that the replica at `place` is repaired, and notes it in `report`.
void note_repair(const std::string& place, std::string reason, PullReport* report);

struct Attempted {
  Status status;
  std::optional<std::string> bad_part;  // damaged or gone: why it failed
};

// Attempts again without the bad part as long as another path leads to the version. What was wrong
// in the store first is the error if none does, and else the report's reason for a repair.
// `repair`: false: the first bad part is an error. `place`: of the replica, for the log.
Status go_around_bad_parts(bool repair, const std::string& place, PullReport* report,
                           const std::function<Attempted(const std::set<std::string>&)>& attempt);

}  // namespace deltawire
