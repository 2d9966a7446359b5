// What a chain must keep: the newest versions, pinned versions and those being read, and everything
// needed to reach them from an anchor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "chain/heartbeat.h"
#include "chain/names.h"
#include "chain/trash.h"

namespace deltawire {

Result<std::vector<uint64_t>> list_pins(Store& store);  // versions, ascending, each once

// ---- the names in a store

// The versions and hop records there are: names only, so it costs a request per thousand.
struct ChainNames {
  std::set<uint64_t> versions;
  std::vector<HopName> hops;

  // The versions around `version` that are there without a hole.
  uint64_t segment_begin(uint64_t version) const;
};
Result<ChainNames> list_names(const Chain& chain);

// The newest version at or below `version` that is stored whole, as a version or as a hop record,
// with all its objects, and from which every version up to `version` exists; none if there is no
// such anchor.
Result<std::optional<uint64_t>> anchor_leading_to(const Chain& chain, const ChainNames& names,
                                                  uint64_t version);

// ---- what to keep

// A lease that has not expired; `expires` is by the store's clock.
struct LiveLease : Lease {
  std::string replica;

  bool operator==(const LiveLease&) const = default;
};

// Versions to keep besides the newest ones.
struct Claims {
  std::vector<uint64_t> pins;
  std::vector<LiveLease> leases;
  // Heartbeats that cannot be read and may hold a lease: of what, cannot be told, so objects of no
  // version are deleted meanwhile. Messages for people.
  std::vector<std::string> unreadable;

  bool operator==(const Claims&) const = default;
  // Why objects of this version may be in use; none if no claim names it.
  std::optional<KeptBecause> read_by(uint64_t version) const;
};
// Leases that expired before `now` do not count, nor does what cannot be read and is a day old. A
// lease runs from the time that the store gave the heartbeat, by the store's clock as `now` is:
// that of the replica may be wrong.
Result<Claims> list_claims(Store& store, int64_t now);

struct Kept {
  std::vector<VersionRange> ranges;  // ascending, apart
  std::vector<KeptVersions> reasons;
  std::vector<std::string> notes;  // pins that cannot be served, for people

  bool contains(uint64_t version) const;
};
// The last `keep` versions up to `head`, and the claims, each with what leads to it from the newest
// anchor at or below it. Corruption when no anchor leads to the head: then nothing is safe to
// remove.
Result<Kept> what_to_keep(const Chain& chain, const ChainNames& names, uint64_t head, uint64_t keep,
                          const Claims& claims);

}  // namespace deltawire
