// By which rule a replica moves when nobody names a version: forward, along one history.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "chain/chain.h"
#include "chain/plan.h"
#include "deltawire/replica.h"
#include "deltawire/status.h"

namespace deltawire {

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

}  // namespace deltawire
