#include "mirror/starting_point.h"

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

namespace {

// The way to begin with `version`; none: it is not stored whole.
Result<std::optional<StartingPoint>> whole_version(const Chain& source, const ChainNames& names,
                                                   uint64_t version) {
  const Result<VersionRecord> record = source.version(version);
  if (!record.ok() && !is_damage(record.status())) return record.status();
  if (!record.ok()) return std::optional<StartingPoint>();
  if (record->manifest.kind == VersionKind::kFull) {
    return std::optional(StartingPoint{version, {}});
  }
  for (const HopName& hop : names.hops) {
    if (hop.base || hop.version != version) continue;
    DW_ASSIGN_OR_RETURN(const bool usable, is_usable(source, hop));
    if (usable) return std::optional(StartingPoint{version, hop});
  }
  return std::optional<StartingPoint>();
}

// The oldest version stored whole.
Result<std::optional<StartingPoint>> oldest_whole(const Chain& source, const ChainNames& names,
                                                  std::optional<uint64_t> after) {
  for (const uint64_t version : names.versions) {
    if (after && version <= *after) continue;
    DW_ASSIGN_OR_RETURN(const auto start, whole_version(source, names, version));
    if (start) return start;
  }
  return std::optional<StartingPoint>();
}

// The newest whole version that leads to `wanted`.
Result<std::optional<StartingPoint>> newest_whole(const Chain& source, const ChainNames& names,
                                                  uint64_t wanted) {
  DW_ASSIGN_OR_RETURN(const auto anchor, anchor_leading_to(source, names, wanted));
  if (!anchor) return std::optional<StartingPoint>();
  return whole_version(source, names, *anchor);
}

Status no_such_version(const Chain& source, const ChainNames& names, uint64_t since) {
  std::string range = "nothing was published yet";
  if (!names.versions.empty()) {
    range = "it has versions " + std::to_string(*names.versions.begin()) + " to " +
            std::to_string(*names.versions.rbegin());
  }
  return not_found(source.store().url() + ": has no version " + std::to_string(since) +
                   " to begin with: " + range);
}

}  // namespace

Result<StartingPoint> starting_point(const Chain& source, std::optional<uint64_t> after,
                                     const MirrorOptions& options) {
  DW_ASSIGN_OR_RETURN(ChainNames names, list_names(source));
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, source.head());
  if (head) names.versions.insert(*head);  // listings may be outdated
  const bool since = options.since && (!after || *options.since > *after);
  if (since && !names.versions.contains(*options.since)) {
    return no_such_version(source, names, *options.since);
  }
  std::optional<StartingPoint> found;
  if (options.all) {
    DW_ASSIGN_OR_RETURN(found, oldest_whole(source, names, after));
  } else if (head) {
    DW_ASSIGN_OR_RETURN(found, newest_whole(source, names, since ? *options.since : *head));
  }
  if (!found || (after && found->version <= *after)) {
    // An unreadable or untrusted record explains more than the message below.
    if (head) DW_RETURN_IF_ERROR(source.version(since ? *options.since : *head).status());
    return not_found(source.store().url() + ": no version is stored whole" +
                     (after ? " above version " + std::to_string(*after) : std::string()) +
                     " that leads to version " +
                     std::to_string(since ? *options.since : head.value_or(0)) +
                     "; store an anchor there first");
  }
  return *found;
}

}  // namespace deltawire
