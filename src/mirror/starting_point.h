// The version that a mirror begins with, where it cannot go on from what it holds.
#pragma once

#include <cstdint>
#include <optional>

#include "chain/chain.h"
#include "chain/names.h"
#include "deltawire/mirror.h"

namespace deltawire {

struct StartingPoint {
  uint64_t version = 0;
  // Holds the version whole; none: the version itself does.
  std::optional<HopName> anchor;
};

// Above `after`, which the mirror holds. As MirrorOptions say; what they say of versions that
// the mirror has passed does not count. NotFound when there is none.
Result<StartingPoint> starting_point(const Chain& source, std::optional<uint64_t> after,
                                     const MirrorOptions& options);

}  // namespace deltawire
