#include "mirror/added_hops.h"

#include <algorithm>

#include "base/clock.h"
#include "chain/hop_records.h"
#include "chain/retention.h"

namespace deltawire {
namespace {

constexpr double kLookSeconds = 60;

}  // namespace

Result<std::optional<HopName>> AddedHops::next(const Chain& source, const Chain& mirror) {
  if (steady_seconds() >= due_) {
    DW_RETURN_IF_ERROR(look(source, mirror));
    due_ = steady_seconds() + kLookSeconds;
  }
  if (pending_.empty()) return std::optional<HopName>();
  return std::optional(pending_.front());
}

void AddedHops::done(const HopName& hop) {
  done_.insert(hop_name(hop));
  std::erase(pending_, hop);
}

Status AddedHops::look(const Chain& source, const Chain& mirror) {
  pending_.clear();
  DW_ASSIGN_OR_RETURN(const auto theirs, list_hops(source, 0, kMaxVersion, SIZE_MAX));
  const auto is_new = [&](const HopName& hop) { return !done_.contains(hop_name(hop)); };
  if (std::none_of(theirs.begin(), theirs.end(), is_new)) return {};
  DW_ASSIGN_OR_RETURN(const ChainNames ours, list_names(mirror));
  for (const HopName& hop : ours.hops) done_.insert(hop_name(hop));
  for (const HopName& hop : theirs) {
    const bool held =
        ours.versions.contains(hop.version) && (!hop.base || ours.versions.contains(*hop.base));
    if (held && is_new(hop)) pending_.push_back(hop);
  }
  return {};
}

}  // namespace deltawire
