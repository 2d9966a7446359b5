// Deletes what earlier calls of gc noted, when its time has come.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "chain/named_objects.h"
#include "chain/retention.h"

namespace deltawire {

// Nobody believes an announcement any more that is older.
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

}  // namespace deltawire
