// Deletes objects that earlier gc calls noted, once their grace period is over.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "chain/named_objects.h"
#include "chain/retention.h"
#include "deltawire/store.h"

namespace deltawire {

// Older announcements are ignored.
inline constexpr int64_t kBelievedSeconds = 24 * 3600;

struct SweepContext {
  Store& store;
  const GcOptions& options;
  int64_t now = 0;  // by the store's clock
  const std::set<uint64_t>& versions;
  const Claims& claims;
};

// Adds to `noted` all objects that are in some note, and to `report` what was deleted and what
// waits.
Status sweep_trash(const SweepContext& context, NamedObjects* named, std::set<std::string>* noted,
                   GcReport* report);

// Several at a time. The first failure, after all have been tried.
Status remove_all(Store& store, const std::vector<std::string>& names);

// Objects of attempts to publish that never committed.
struct OrphanSearch {
  Store& store;
  uint64_t head = 0;   // up to it no attempt will commit any more; above it one may
  int64_t before = 0;  // seconds since 1970: what was put later may still be at work
  const std::set<std::string>& noted;  // known already, and left out
};
using TakeOrphan = std::function<Status(const ObjectInfo& object)>;

// Parts. `records` says how many records of each version there are that stay.
Status find_orphans(const OrphanSearch& search, const std::map<uint64_t, size_t>& records,
                    NamedObjects* named, const TakeOrphan& take);
// Files beside the weights; also of versions whose records could not be read when they were
// removed.
Status find_side_orphans(const OrphanSearch& search, NamedObjects* named, const TakeOrphan& take);

}  // namespace deltawire
