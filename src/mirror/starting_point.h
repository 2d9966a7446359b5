// The version that a mirror begins with, where it cannot go on from what it holds.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>

#include "chain/chain.h"
#include "chain/names.h"
#include "deltawire/mirror.h"

namespace deltawire {

// Merged deltas and anchors of the source that the mirror does not have. They may be added to
// versions that were copied long ago.

// One thread.
class AddedHops {
 public:
  // After a version was copied: the source may have some for it.
  void look_again() { due_ = 0; }
  // The next one whose both ends the mirror holds, oldest first; none: there is none. Lists the
  // source's at most once a minute, unless it is to look again.
  Result<std::optional<HopName>> next(const Chain& source, const Chain& mirror);
  // It is there now, or of no use: next() does not come back to it.
  void done(const HopName& hop);

 private:
  Status look(const Chain& source, const Chain& mirror);

  double due_ = 0;  // when to look, by the steady clock
  std::deque<HopName> pending_;
  std::set<std::string> done_;
};

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
