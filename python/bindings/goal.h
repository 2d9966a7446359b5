// Where a replica is to go, as Python says it.
#pragma once

#include <cstdint>
#include <optional>

#include "deltawire/replica.h"

namespace deltawire::python {

inline PullGoal pull_goal(std::optional<uint64_t> version, std::optional<uint64_t> until,
                          std::optional<uint64_t> head) {
  PullGoal goal = version;
  goal.until = until;
  goal.head = head;
  return goal;
}

}  // namespace deltawire::python
