// Adding a hop record when it may be there already, or when the store's answer may have been lost.
#pragma once

#include <vector>

#include "chain/chain.h"

namespace deltawire {

enum class EnsuredHop : uint8_t {
  kAdded,
  kThere,  // another made the same: ours is not referred to and may go
};

// A hop record of this name that nobody can use (its record is damaged or signed by a stranger, its
// parts are gone or cut off) does not count and is replaced; so do others between the same versions
// go. After a failure the hop record may still appear: its parts must stay.
// `replace`: the caller knows that what has this name is of no use.
Result<EnsuredHop> ensure_hop(const Chain& chain, const VersionRecord* base,
                              const VersionRecord& version, const std::vector<PartRef>& parts,
                              bool replace = false);

}  // namespace deltawire
