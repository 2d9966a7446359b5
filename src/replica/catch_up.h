// How every replica gets to a version: plan, fetch, decode, stage. What is staged is written by
// the replica's commit().
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

// Where a catch-up leads: the files of a folder (file_sink.h), or tensors in the caller's memory
// (tensor_sink.h). The pipeline, which is the same for all, is in catch_up.h.

// One try to get to a version, as far as it has come.
struct Attempt {
  const AttemptGoal goal;
  PullReport& report;
  PhaseClock& clock;
  PullProgress progress;
  Plan plan = {};  // once it is planned
};

// Steps that can be taken.
struct ReadySteps {
  std::span<const TensorSteps> steps;  // of tensors that are held, or that the steps bring whole
  // All parts are there, and these are all steps that are left; tensors that nothing changes are
  // among them, without entries.
  bool last = false;
};

// All that a new version is built from, when it has been fetched.
struct FetchedVersion {
  std::optional<Checkpoint> whole;  // where the plan begins; none: with what is held
  std::filesystem::path folder;     // of that: the sink's to take
  std::span<const Delta> deltas;    // of the hops after it
  std::vector<TensorSteps> steps;   // of all tensors
};

// For one attempt. The replica keeps what it holds as it is: a sink makes ready what the replica's
// commit() is to write. Calls come in the order in which they stand here. BaseMismatch from any of
// them: what is held is not what it should be.
class CatchUpSink {
 public:
  virtual ~CatchUpSink() = default;

  // Drops what attempts before this one have made.
  virtual Status begin() = 0;
  // The attempt has its plan: can it be gone here? Adds to the report what is to come with it.
  virtual Status look_at_plan() = 0;
  // The plan has no hops: what is held is the version. Proves that, as far as it is asked for.
  // False: something beside the weights is not as the version has it, and is still to be fetched.
  virtual Result<bool> is_there() = 0;

  // Bytes of the weights that are there already.
  virtual uint64_t local_bytes() const { return 0; }
  // For parts, while they are worked on.
  virtual std::filesystem::path work_folder() const = 0;
  // A file of a version that is stored whole: true when it is at hand, and in `folder` now,
  // unpacked.
  virtual Result<bool> take_file(const PartRef&, const std::filesystem::path&) { return false; }
  // What is fetched after the parts. No path leads around it.
  virtual Result<std::vector<FetchItem>> items_beside() { return std::vector<FetchItem>(); }

  // Opens what is held, where the plan begins with it. True: steps are taken one by one, by
  // stage(); false: by build(), all at once.
  virtual Result<bool> open_held() = 0;
  virtual HeldTensors held() const = 0;  // sorted by name

  // Whether stage() may be called with some steps while parts of others still arrive.
  virtual bool takes_steps_early() const { return true; }
  // What `ready` points to may go when it returns.
  virtual Status stage(const ReadySteps& ready) = 0;
  virtual Status build(FetchedVersion version) = 0;

  // All is built and proven: leaves it to commit(), and removes what has served.
  virtual Status finish() = 0;
};

struct CatchUpStart {
  const Chain& chain;
  const std::optional<Held>& held;           // not looked at when the goal is to begin with nothing
  const std::optional<VersionRecord>& seen;  // as for plan_pull()
  ThreadPool* pool;
  ReplicaBeat* beat = nullptr;
};

// One attempt, without the parts of `avoid`. Where one hop is enough, its parts are decoded while
// others arrive.
Attempted catch_up(const CatchUpStart& start, const std::set<std::string>& avoid, Attempt* attempt,
                   CatchUpSink* sink);

}  // namespace deltawire
