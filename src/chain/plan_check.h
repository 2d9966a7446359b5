// Whether the records along a path fit together: names and sums alone say nothing for certain.
#pragma once

#include <vector>

#include "chain/plan_records.h"

namespace deltawire {

// From a manifest of digest `held` (any, for a path from nothing) to one of digest `target`. All
// records along the path were read. False: they do not fit, and what does not is ruled out.
Result<bool> check_path(const std::vector<PathStep>& path, const Digest& held, const Digest& target,
                        PlanRecords* records);

}  // namespace deltawire
