// Which store a snapshot was published to: tells a store that is new from one that has gone.
#pragma once

#include <filesystem>

#include "deltawire/publish_options.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// Notes in a run's snapshot folder where that run is. Best effort: without the note a vanished
// store is not noticed, and nothing else is lost.
void remember_store(const Store& store, const std::filesystem::path& snapshot);

// For a store that holds no run. NotFound when the snapshot is of a run; with a snapshot per run,
// when one of the snapshots in the folder is of a run in this very store.
Status check_no_run_was_here(const Store& store, const SnapshotInFolder& place);

// Lets go of what would be refused: the notes, and the snapshot where there is one for all runs.
Status forget_runs(const Store& store, const SnapshotInFolder& place);

}  // namespace deltawire
