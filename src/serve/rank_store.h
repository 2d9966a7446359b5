// A chain in the memory of a trainer's ranks. Each rank keeps its own parts; rank 0 has everything
// else, and its server redirects readers of a part to the rank that holds it.
//
//   rank 0:  put, commit ──> its memory          reader ── GET part of rank 3 ──> rank 0: 307
//   rank 3:  put parts ────> its memory                 └────────────────────────> rank 3: bytes
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/store.h"

namespace deltawire {

// The store for one rank's publisher. `own`: this rank's part of the chain, in memory. `urls`: the
// servers of all ranks, by rank. Thread-safe.
//
// Reading an object of a rank that has died fails with Unavailable and names the object, whose name
// contains the rank. When a rank puts parts of the next version, it drops its parts of failed
// attempts and of versions that are no longer in the chain.
Result<std::shared_ptr<Store>> open_rank_store(unsigned rank, std::shared_ptr<Store> own,
                                               std::vector<std::string> urls,
                                               const StoreOptions& options);

// The URL of the rank that holds an object; empty: rank 0.
std::string url_of_holder(const std::vector<std::string>& urls, std::string_view name);

}  // namespace deltawire
