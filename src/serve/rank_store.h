// A chain in the memory of a trainer's ranks: the parts that a rank makes stay with it, all else is
// with rank 0, whose server sends readers of a part on to the rank that holds it.
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

// For one rank's publisher. `own`: its part of the chain, in memory. `urls`: servers of all ranks'
// own parts, by rank. Thread-safe.
//
// Reading what another rank holds fails with Unavailable, naming the object, and so the rank, when
// that is gone. A rank drops its parts of versions that are no longer in the chain, and those of
// failed attempts, when it puts parts of the next version.
Result<std::shared_ptr<Store>> open_rank_store(unsigned rank, std::shared_ptr<Store> own,
                                               std::vector<std::string> urls,
                                               const StoreOptions& options);

// Where an object is read, by its name: the URL of the rank that holds it; empty: rank 0.
std::string url_of_holder(const std::vector<std::string>& urls, std::string_view name);

}  // namespace deltawire
