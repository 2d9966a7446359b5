// Merged deltas and anchors of the source that the mirror does not have. They may be added to
// versions that were copied long ago.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>

#include "chain/chain.h"
#include "chain/names.h"

namespace deltawire {

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

}  // namespace deltawire
