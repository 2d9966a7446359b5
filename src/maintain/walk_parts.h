// Parts of a chain, one after the other, onto states in memory: what a check of states walks along.
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

// States of a chain on disk, for work that needs no trainer: anchors made afterwards, merged
// deltas.

// A replica in a work folder. Thread safety: none.
class ChainState {
 public:
  static Result<ChainState> open(const Chain& chain, std::filesystem::path folder,
                                 const WorkOptions& options);
  // By the cheapest path from where it is. The checkpoint is valid until the next call.
  Result<const Checkpoint*> bring_to(uint64_t version);

 private:
  explicit ChainState(Replica replica) : replica_(std::move(replica)) {}
  Replica replica_;
  std::optional<Checkpoint> checkpoint_;
};

using TensorNames = std::set<std::string, std::less<>>;

// A step of the walk that could not be taken.
struct FailedStep {
  Status status;
  bool said = false;  // by fsck, which reads the same objects
};
using WalkStep = std::optional<FailedStep>;  // none: it was taken

// One thread.
class WalkParts {
 public:
  WalkParts(Store& store, const Allocate& allocate, const Progress& progress)
      : store_(store), allocate_(allocate), progress_(progress) {}

  // The files of a version that is stored whole.
  WalkStep add_files(const std::vector<PartRef>& parts, MemoryState* state);
  // Calls `apply` for every entry of a delta's parts, whose tensors are added to `touched`, and
  // `removed` for tensors that go.
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
  uint64_t num_versions = 0, num_hops = 0;  // that were decoded, and are right
  std::vector<std::string> problems;        // naming version and tensor
};

// Walks from every version that is stored whole along the deltas, and compares the digest of each
// tensor that a step touches with the manifest's; anchors and merged deltas likewise. Objects that
// are missing or damaged are the business of fsck: what rests on them is passed over here, and
// said. Fails only when the store does.
//
// Holds one state of the model and one file: in memory, or, with `options.folder`, in files there.
Result<StateCheckReport> check_states(const Chain& chain, const WorkOptions& options);

}  // namespace deltawire
