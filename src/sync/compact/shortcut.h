// Adding an edge when it may be there already, or when the store's answer may have been lost.
#pragma once

#include <vector>

#include "chain/chain.h"

namespace deltawire {

enum class Shortcut : uint8_t {
  kAdded,
  kThere,  // another made the same: ours is not referred to and may go
};

// After a failure the edge may still appear: its parts must stay.
Result<Shortcut> add_shortcut(const Chain& chain, const VersionRecord* base,
                              const VersionRecord& version, const std::vector<PartRef>& parts);

}  // namespace deltawire
