// A chain of records alone, of any length: what finding the head and planning look at, without
// weights behind it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "chain/chain.h"
#include "cli/context.h"
#include "store/memory_store.h"

namespace deltawire::cli {

struct MadeChain {
  std::shared_ptr<MemoryStore> memory;
  std::vector<Digest> manifests;  // by version
};

// Versions 0 ... `versions` - 1 of a model of 1 GB, of which each changes 1 %: an anchor every 256
// of them and merged deltas of 4, 16 and 64, as `compact` and `publish --anchor-every 256` leave
// them.
Result<MadeChain> make_chain(uint64_t versions, const Progress& progress);

// Writes every object below `folder`, as a directory store has them. Not synced: it is thrown away.
Status write_objects(Store* store, const std::filesystem::path& folder);

}  // namespace deltawire::cli
