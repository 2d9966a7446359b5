// Objects of attempts to publish that never committed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "chain/named_objects.h"
#include "deltawire/store.h"

namespace deltawire {

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
