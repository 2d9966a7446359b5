// What a publisher with a snapshot on disk has committed last: for those who make the next version
// from it, tensor by tensor, rather than bring their own.
#pragma once

#include <filesystem>
#include <optional>

#include "deltawire/checkpoint.h"
#include "deltawire/publisher.h"
#include "format/manifest.h"

namespace deltawire {

struct CommittedState {
  Checkpoint checkpoint;  // the snapshot's; to be read until the next publish
  VersionRecord record;   // of the version that it is
  Schema schema;
  std::filesystem::path folder;  // of the snapshot
};

// Brings the snapshot to the chain's newest version where it is not there. None: nothing was
// published yet. InvalidArgument: the snapshot is not in a folder.
Result<std::optional<CommittedState>> committed_state(Publisher* publisher);

}  // namespace deltawire
