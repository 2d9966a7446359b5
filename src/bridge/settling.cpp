#include "bridge/settling.h"

#include <cmath>

#include "bridge/foreign.h"

namespace deltawire {

bool Settling::is_over(const ForeignInfo& info) {
  if (info.sealed || seconds_ == 0) return true;
  const std::string now = fingerprint_of(info);
  if (!seen_ || seen_->fingerprint != now) seen_ = Seen{now, clock_.now()};
  if (clock_.now() - seen_->since >= seconds_) return true;
  waits_for_ = "version " + std::to_string(info.version) +
               " may still get files: waiting for DONE or for the next version" +
               (std::isinf(seconds_) ? "" : ", or until nothing has changed for a while");
  return false;
}

}  // namespace deltawire
