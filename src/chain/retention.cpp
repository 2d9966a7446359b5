#include "chain/retention.h"

#include <algorithm>

#include "base/sync_point.h"
#include "base/text.h"
#include "chain/heartbeat.h"
#include "chain/hop_records.h"

namespace deltawire {
namespace {

constexpr size_t kPinDigits = 12;

// Ok when something leads to this version and no gc has announced to remove any of it.
Status check_not_going(const Chain& chain, uint64_t version) {
  const std::string place = chain.store().url() + ": version " + std::to_string(version);
  DW_ASSIGN_OR_RETURN(const ChainNames names, list_names(chain));
  std::optional<uint64_t> anchor;
  if (names.versions.contains(version)) {
    DW_ASSIGN_OR_RETURN(anchor, anchor_leading_to(chain, names, version));
  }
  if (!anchor) return not_found(place + ": it can no longer be reached from an anchor");
  DW_ASSIGN_OR_RETURN(const auto trash, list_trash(chain.store()));
  for (const ListedTrash& listed : trash) {
    if (!listed.trash.ok()) {
      return Status(listed.trash.status())
          .at(place + ": gc may be removing it; remove this note if no gc is running");
    }
    for (const VersionRange& range : listed.trash->versions) {
      if (range.first <= version && range.last >= *anchor) {
        return conflict(place + ": gc is removing it, or a version that it depends on (" +
                        listed.object.name + ")");
      }
    }
  }
  return {};
}

void add_range(std::vector<VersionRange>* ranges, VersionRange range) {
  ranges->push_back(range);
  std::sort(ranges->begin(), ranges->end(),
            [](const VersionRange& a, const VersionRange& b) { return a.first < b.first; });
  std::vector<VersionRange> joined;
  for (const VersionRange& next : *ranges) {
    if (!joined.empty() && next.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, next.last);
    } else {
      joined.push_back(next);
    }
  }
  *ranges = std::move(joined);
}

}  // namespace

Result<std::vector<uint64_t>> list_pins(Store& store) {
  std::vector<uint64_t> pins;
  DW_RETURN_IF_ERROR(list_all(store, kPinPrefix, "", [&](const ObjectInfo& object) {
    const auto version = version_of_pin(object.name);
    if (version && (pins.empty() || pins.back() != *version)) pins.push_back(*version);
    return true;
  }));
  return pins;
}

Status Chain::pin(uint64_t number) const {
  DW_RETURN_IF_ERROR(version(number).status());
  const std::string name = pin_name(number, random_hex(kPinDigits));
  DW_RETURN_IF_ERROR(store().put(name, MemoryBody(std::string_view())));
  DW_SYNC_POINT("pin: put");
  // gc announces what it is about to remove, then looks at pins: either it sees this one or this
  // sees the announcement.
  Status status = check_not_going(*this, number);
  if (!status.ok()) (void)store().remove(name);  // one that stays keeps too much, not too little
  return status;
}

Status Chain::unpin(uint64_t number) const {
  std::vector<std::string> names;
  const std::string prefix = std::string(kPinPrefix) + number_name(number);
  DW_RETURN_IF_ERROR(list_all(store(), prefix, "", [&](const ObjectInfo& object) {
    if (version_of_pin(object.name) == number) names.push_back(object.name);
    return true;
  }));
  if (names.empty()) {
    return not_found(store().url() + ": version " + std::to_string(number) + " is not pinned");
  }
  for (const std::string& name : names) DW_RETURN_IF_ERROR(store().remove(name));
  return {};
}

Result<std::vector<uint64_t>> Chain::pins() const { return list_pins(store()); }

uint64_t ChainNames::segment_begin(uint64_t version) const {
  auto at = versions.find(version);
  uint64_t begin = version;
  while (at != versions.begin() && *std::prev(at) + 1 == begin) begin = *--at;
  return begin;
}

Result<ChainNames> list_names(const Chain& chain) {
  ChainNames names;
  DW_RETURN_IF_ERROR(list_all(chain.store(), kManifestPrefix, "", [&](const ObjectInfo& object) {
    if (const auto version = version_of_manifest(object.name)) names.versions.insert(*version);
    return true;
  }));
  DW_RETURN_IF_ERROR(list_all(chain.store(), kHopPrefix, "", [&](const ObjectInfo& object) {
    if (const auto hop = parse_hop_name(object.name)) names.hops.push_back(*hop);
    return true;
  }));
  return names;
}

Result<std::optional<uint64_t>> anchor_leading_to(const Chain& chain, const ChainNames& names,
                                                  uint64_t version) {
  const uint64_t begin = names.segment_begin(version);
  for (uint64_t at = version;; --at) {
    const Result<VersionRecord> record = chain.version(at);
    if (!record.ok() && !is_damage(record.status())) return record.status();
    if (!record.ok()) return std::optional<uint64_t>();  // nothing leads across a damaged one
    // The newest by what the record knew, or by a hop record made later.
    uint64_t candidate = record->manifest.anchor;
    for (const HopName& hop : names.hops) {
      if (!hop.base && hop.version <= at) candidate = std::max(candidate, hop.version);
    }
    if (candidate < begin) return std::optional<uint64_t>();
    for (const HopName& hop : names.hops) {
      if (hop.base || hop.version != candidate) continue;
      DW_ASSIGN_OR_RETURN(const bool usable, is_usable(chain, hop));
      if (usable) return std::optional(candidate);
    }
    const Result<VersionRecord> own = chain.version(candidate);
    if (!own.ok() && !is_damage(own.status())) return own.status();
    if (own.ok() && own->manifest.kind == VersionKind::kFull) {
      DW_ASSIGN_OR_RETURN(const bool usable, are_there(chain.store(), own->manifest.parts));
      if (usable) return std::optional(candidate);
    }
    if (candidate == begin) return std::optional<uint64_t>();
    at = candidate;
  }
}

Result<Claims> list_claims(Store& store, int64_t now) {
  Claims claims;
  DW_ASSIGN_OR_RETURN(claims.pins, list_pins(store));
  DW_ASSIGN_OR_RETURN(const auto heartbeats, list_heartbeats(store));
  for (const ListedHeartbeat& listed : heartbeats) {
    if (!listed.heartbeat.ok()) {
      if (now - listed.object.modified > kMaxLeaseSeconds) continue;
      claims.unreadable.push_back(listed.heartbeat.status().to_string() +
                                  ": it may hold a lease, so no objects are deleted until it is a "
                                  "day old; remove it if its replica is gone");
      continue;
    }
    const Heartbeat& heartbeat = *listed.heartbeat;
    if (!heartbeat.lease) continue;
    // Both are by the replica's clock, so how long it lasts does not depend on that clock.
    const int64_t lasts =
        std::clamp<int64_t>(heartbeat.lease->expires - heartbeat.seen, 0, kMaxLeaseSeconds);
    LiveLease lease{*heartbeat.lease, heartbeat.name};
    lease.expires = listed.object.modified + lasts;
    if (lease.expires > now) claims.leases.push_back(std::move(lease));
  }
  return claims;
}

std::optional<KeptBecause> Claims::read_by(uint64_t version) const {
  for (const LiveLease& lease : leases) {
    if (version > lease.to || version < lease.from.value_or(0)) continue;
    return KeptBecause{"lease", lease.replica, lease.expires};
  }
  if (!unreadable.empty()) return KeptBecause{"unreadable heartbeat", "", 0};
  return {};
}

bool Kept::contains(uint64_t version) const {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const VersionRange& range) { return range.contains(version); });
}

Result<Kept> what_to_keep(const Chain& chain, const ChainNames& names, uint64_t head, uint64_t keep,
                          const Claims& claims) {
  Kept kept;
  const uint64_t begin = names.segment_begin(head);
  const uint64_t oldest = std::max(begin, head + 1 - std::min(keep, head + 1));
  DW_ASSIGN_OR_RETURN(const auto floor, anchor_leading_to(chain, names, oldest));
  if (!floor) {  // the lower end of what is kept is already gone, or damaged
    DW_ASSIGN_OR_RETURN(const auto any, anchor_leading_to(chain, names, head));
    if (!any) {
      return corruption(chain.store().url() + ": no anchor leads to version " +
                        std::to_string(head) + "; nothing is removed");
    }
  }
  const auto keep_range = [&](KeptBecause because, VersionRange versions, uint64_t first) {
    add_range(&kept.ranges, {first, versions.last});
    kept.reasons.push_back({std::move(because), versions, first});
  };
  keep_range({"newest", "", 0}, {oldest, head}, floor.value_or(oldest));
  const auto keep_reachable = [&](const KeptBecause& because, uint64_t version) -> Result<bool> {
    if (kept.contains(version)) {
      kept.reasons.push_back({because, {version, version}, version});
      return true;
    }
    if (!names.versions.contains(version)) return false;
    DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> anchor,
                        anchor_leading_to(chain, names, version));
    // What leads to it may only be unreadable for now: then all that is there below it stays.
    keep_range(because, {version, version}, anchor.value_or(names.segment_begin(version)));
    return anchor.has_value();
  };
  for (const uint64_t pin : claims.pins) {
    DW_ASSIGN_OR_RETURN(const bool served, keep_reachable({"pinned", "", 0}, pin));
    if (!served) {
      kept.notes.push_back("version " + std::to_string(pin) +
                           " is pinned, but cannot be reached from an anchor");
    }
  }
  for (const LiveLease& lease : claims.leases) {
    const KeptBecause because{"lease", lease.replica, lease.expires};
    const uint64_t to = std::min(lease.to, head);
    std::optional<uint64_t> anchor;
    // Its base stays a version like any other, reachable; or else the reader begins at an anchor.
    if (lease.from && *lease.from <= to && names.versions.contains(*lease.from)) {
      DW_ASSIGN_OR_RETURN(anchor, anchor_leading_to(chain, names, *lease.from));
    }
    if (anchor) {
      keep_range(because, {*lease.from, to}, *anchor);
    } else {
      DW_RETURN_IF_ERROR(keep_reachable(because, to).status());
    }
  }
  return kept;
}

}  // namespace deltawire
