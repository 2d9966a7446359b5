// The way of every replica to a version: plan, fetch, decode, stage. What is staged is written by
// the replica's commit().
#pragma once

#include <optional>
#include <set>
#include <string>

#include "chain/chain.h"
#include "chain/plan.h"
#include "replica/beat.h"
#include "replica/catch_up_sink.h"
#include "replica/route.h"

namespace deltawire {

struct CatchUpStart {
  const Chain& chain;
  const std::optional<Held>& held;           // not looked at when the goal is to begin with nothing
  const std::optional<VersionRecord>& seen;  // as for plan_route()
  ReplicaBeat* beat = nullptr;
};

// One attempt, without the parts of `avoid`. Where one hop is enough, its parts are decoded while
// others arrive.
Attempted catch_up(const CatchUpStart& start, const std::set<std::string>& avoid, Attempt* attempt,
                   CatchUpSink* sink);

}  // namespace deltawire
