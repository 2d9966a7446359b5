// How every replica reaches a version: plan, fetch, decode, stage. The replica's commit() writes
// what was staged.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "chain/plan.h"
#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "deltawire/replica.h"
#include "replica/beat.h"
#include "replica/plan_pull.h"
#include "replica/pull_progress.h"
#include "replica/tensors.h"
#include "transfer/fetch.h"

namespace deltawire {

// A sink stages the target: files in a folder (file_sink.h) or tensors in memory
// (tensor_replica_impl.h). The pipeline in catch_up.cpp is the same for both.

// One attempt to reach a version, and its state.
struct Attempt {
  const AttemptGoal goal;
  PullReport& report;
  PhaseClock& clock;
  PullProgress progress;
  Plan plan = {};  // set by planning
};

// Steps that are ready to be taken.
struct ReadySteps {
  std::span<const TensorSteps> steps;  // of held tensors, or of tensors that the steps bring whole
  // All parts have arrived, and these are all remaining steps. Unchanged tensors are among them,
  // without entries.
  bool last = false;
};

// Everything that a new version is built from, once it has been fetched.
struct FetchedVersion {
  // the whole version that the plan begins with; none: it begins with what is held
  std::optional<Checkpoint> whole;
  std::filesystem::path folder;    // where `whole` is; the sink may take its files
  std::span<const Delta> deltas;   // of the hops after `whole`
  std::vector<TensorSteps> steps;  // of all tensors
};

// A sink for one attempt. It does not change what the replica holds; it stages what the replica's
// commit() will write. Calls come in the order of declaration. Any of them may return BaseMismatch:
// what is held is not what it should be.
class CatchUpSink {
 public:
  virtual ~CatchUpSink() = default;

  // Drops what earlier attempts have staged.
  virtual Status begin() = 0;
  // Checks whether the plan can be carried out here, and adds its costs to the report.
  virtual Status look_at_plan() = 0;
  // Called when the plan has no hops, because the version is already held. Proves that, if it was
  // requested. False: a side file differs from the version and must be fetched.
  virtual Result<bool> is_there() = 0;

  // Bytes of the weights that are held.
  virtual uint64_t local_bytes() const { return 0; }
  // Holds parts while they are processed.
  virtual std::filesystem::path work_folder() const = 0;
  // Provides a file of a whole version, unpacked, in `folder`. True: the file was available locally
  // and need not be fetched.
  virtual Result<bool> take_file(const PartRef&, const std::filesystem::path&) { return false; }
  // Items to fetch after the parts. There is no alternative source for them.
  virtual Result<std::vector<FetchItem>> items_beside() { return std::vector<FetchItem>(); }

  // Opens what is held, where the plan begins with it. True: the steps go to stage() one by one.
  // False: they go to build() together.
  virtual Result<bool> open_held() = 0;
  virtual HeldTensors held() const = 0;  // sorted by name

  // Whether stage() may be called while other parts still arrive.
  virtual bool takes_steps_early() const { return true; }
  // What `ready` points to may be freed after this returns.
  virtual Status stage(const ReadySteps& ready) = 0;
  virtual Status build(FetchedVersion version) = 0;

  // Everything is built and proven. Hands it over to commit() and removes temporary files.
  virtual Status finish() = 0;
};

struct CatchUpStart {
  const Chain& chain;
  const std::optional<Held>& held;           // ignored when the goal starts from nothing
  const std::optional<VersionRecord>& seen;  // see plan_pull()
  ThreadPool* pool;
  ReplicaBeat* beat = nullptr;
};

// Makes one attempt without the parts in `avoid`. If the plan has a single hop, decodes parts while
// others arrive.
Attempted catch_up(const CatchUpStart& start, const std::set<std::string>& avoid, Attempt* attempt,
                   CatchUpSink* sink);

}  // namespace deltawire
