// The version that a mirror begins with if it cannot continue from what it holds.
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

// Merged deltas and anchors that the mirror lacks. The source may add them to versions that were
// copied long ago.

// One thread.
class AddedHops {
 public:
  // Called after a version was copied: the source may have hops for it.
  void look_again() { due_ = 0; }
  // The oldest missing hop whose both ends the mirror holds; none: there is none. Lists the source
  // at most once a minute, unless look_again() was called.
  Result<std::optional<HopName>> next(const Chain& source, const Chain& mirror);
  // The hop was copied or is not usable. next() does not return it again.
  void done(const HopName& hop);

 private:
  Status look(const Chain& source, const Chain& mirror);

  double due_ = 0;  // next time to look, on the steady clock
  std::deque<HopName> pending_;
  std::set<std::string> done_;
};

struct StartingPoint {
  uint64_t version = 0;
  // The anchor with the version; none: the version is itself stored whole.
  std::optional<HopName> anchor;
};

// The starting point after `after`, which the mirror holds, according to `options`. Settings for
// versions that the mirror has passed are ignored. NotFound if there is none.
Result<StartingPoint> starting_point(const Chain& source, std::optional<uint64_t> after,
                                     const MirrorOptions& options);

}  // namespace deltawire
