// Finds the newest version that a store holds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// A bounded number of requests: the hint, a listing from there, and probes at growing distances,
// should the listing be behind.
Result<std::optional<uint64_t>> find_head(Store& store);

// What HEAD says; none when it is not there, or no number.
Result<std::optional<uint64_t>> read_hint(Store& store);

Result<bool> has_version(Store& store, uint64_t version);
// The versions from `from` on that a listing shows, up to a page of them. Lists may lag behind.
Result<std::vector<uint64_t>> listed_from(Store& store, uint64_t from);

}  // namespace deltawire
