// What a snapshot's folder notes of the store that it was published to: which one, and the newest
// version there. Tells a store that is new, or behind, from one that has lost its run or versions.
#pragma once

#include <filesystem>
#include <optional>

#include "chain/plan.h"
#include "deltawire/publish_options.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

struct KnownVersion {
  std::string run;
  Held version;
  std::string elsewhere = {};  // another store that it was published to; empty: this one
};

// Best effort: without the note a loss is not noticed, and nothing else is lost.
void remember_store(const Store& store, const std::filesystem::path& snapshot,
                    const std::optional<KnownVersion>& newest);
std::optional<KnownVersion> known_version(const Store& store,
                                          const std::filesystem::path& snapshot);

// For a store that holds no run. NotFound when the snapshot is of a run; with a snapshot per run,
// when one of the snapshots in the folder is of a run in this very store.
Status check_no_run_was_here(const Store& store, const SnapshotInFolder& place);

// Lets go of what would be refused: the notes, and the snapshot where there is one for all runs.
Status forget_runs(const Store& store, const SnapshotInFolder& place);

}  // namespace deltawire
