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
               (std::isinf(seconds_) ? "; --settle SECONDS takes it after so long without a change"
                                     : ", or for --settle to pass without a change");
  return false;
}

}  // namespace deltawire
