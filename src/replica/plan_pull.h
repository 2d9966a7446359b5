// Plans for pulls of every kind of replica: made, checked, and made again without bad parts.
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

// The rules by which a replica chooses a version when the caller names none: forward, along one
// history.

// The goal of one attempt.
struct AttemptGoal {
  uint64_t version = 0;
  bool from_nothing = false;  // ignore what is held
  bool named = false;         // the caller asked for this version by number
};

// Opens the chain that a replica reads. BaseMismatch if it belongs to another run than the
// requested one. An empty run matches any.
Result<Chain> open_chain(const std::shared_ptr<Store>& store, const Accept& accept);

// The newest version, looking from what is held. None: nothing was published yet. NotFound: the
// store no longer holds the run.
Result<Chain::Newest> find_newest(const Chain& chain, const std::optional<uint64_t>& held);

// The version that `goal` leads to, given the held version and the head (ignored if the goal names
// a version). It is never older than the held version unless the goal names it. NotFound if the
// store has lost versions or has none that is new enough.
Result<uint64_t> choose_version(const Chain& chain, const PullGoal& goal,
                                const std::optional<uint64_t>& head,
                                const std::optional<uint64_t>& held, uint64_t at_least);

// Corruption if the chain now has another version under the held version's number, as far as this
// can be determined. Versions are written once, so somebody has rewritten the chain.
Status check_history(const Chain& chain, const Held& held);
// Turns a plan's BaseMismatch into the same error.
Status another_history(const Status& planned);

inline Target target_of(const Plan& plan) { return {plan.target.manifest, plan.schema}; }
// The plan begins with a whole version, so what is held is not used.
inline bool from_whole(const Plan& plan) { return !plan.hops.empty() && !plan.hops[0].base; }

// The plan starts at the last whole version on the path. `seen`: a record that was just read and
// may be the target's. `avoid`: parts that must not be used. Checks the target's manifest and
// schema, but not the sizes of the hops. Fills `report` with target and costs. Corruption if what
// is held belongs to another history than the chain; BaseMismatch instead if the goal names the
// version, because then the old history is given up.
Result<Plan> plan_pull(const Chain& chain, const std::optional<Held>& held, const AttemptGoal& goal,
                       const std::optional<VersionRecord>& seen, const std::set<std::string>& avoid,
                       PullReport* report);

// Logs that the replica at `place` is being repaired, and notes the reason in `report`.
void note_repair(const std::string& place, std::string reason, PullReport* report);

struct Attempted {
  Status status;
  std::optional<std::string> bad_part;  // set if a damaged or missing part caused the failure
};

// Repeats the attempt without bad parts as long as another path leads to the version. If none does,
// returns the first error found in the store; otherwise that error becomes the report's repair
// reason. With `repair` false the first bad part is an error. `place` names the replica in the log.
Status go_around_bad_parts(bool repair, const std::string& place, PullReport* report,
                           const std::function<Attempted(const std::set<std::string>&)>& attempt);

}  // namespace deltawire
