// States of a chain, in files or in memory, and the check that decodes every version.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/folder.h"
#include "deltawire/checkpoint.h"
#include "deltawire/maintain.h"
#include "deltawire/replica.h"
#include "deltawire/status.h"
#include "format/delta_part.h"
#include "replica/memory_state.h"

namespace deltawire {

// A version as files, for work that needs no trainer: anchors and merged deltas.

// A replica in a work folder. Not thread-safe.
class ChainState {
 public:
  static Result<ChainState> open(const Chain& chain, std::filesystem::path folder,
                                 const WorkOptions& options);
  // Pulls the version by the cheapest path. The checkpoint is valid until the next call.
  Result<const Checkpoint*> bring_to(uint64_t version);

 private:
  explicit ChainState(Replica replica) : replica_(std::move(replica)) {}
  Replica replica_;
  std::optional<Checkpoint> checkpoint_;
};

using TensorNames = std::set<std::string, std::less<>>;

// A step of the walk that failed.
struct FailedStep {
  Status status;
  bool said = false;  // fsck reports it, because it reads the same objects
};
using WalkStep = std::optional<FailedStep>;  // none: the step succeeded

// One thread.
class WalkParts {
 public:
  WalkParts(Store& store, const Allocate& allocate, const Progress& progress)
      : store_(store), allocate_(allocate), progress_(progress) {}

  // Adds the files of a whole version.
  WalkStep add_files(const std::vector<PartRef>& parts, MemoryState* state);
  // Calls `apply` for every entry of a delta's parts and adds its tensor to `touched`. Calls
  // `removed` for removed tensors.
  WalkStep apply_parts(const std::vector<PartRef>& parts, TensorNames* touched,
                       const std::function<Status(const PayloadView&)>& apply,
                       const std::function<void(const std::string& tensor)>& removed);

 private:
  WalkStep fetch(const PartRef& part, FetchedObject* object, bool whole = false);

  Store& store_;
  const Allocate& allocate_;
  const Progress& progress_;
  uint64_t done_ = 0;
};

struct StateCheckReport {
  uint64_t num_versions = 0, num_hops = 0;  // decoded and correct
  std::vector<std::string> problems;        // with version and tensor
};

// Walks from every whole version along the deltas. Compares the digest of each tensor that a step
// touches with the manifest, and checks anchors and merged deltas in the same way. Missing and
// damaged objects are reported by fsck; versions that depend on them are skipped here and reported
// as such. Fails only if the store does.
//
// Holds one state of the model and one file: in memory, or in files in `options.folder`.
Result<StateCheckReport> check_states(const Chain& chain, const WorkOptions& options);

}  // namespace deltawire
