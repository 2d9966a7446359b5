// The parts of a TensorReplica. tensor_replica.cpp has the public calls (open, prepare, commit);
// TensorSink stages a version.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/folder.h"
#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "deltawire/tensor_replica.h"
#include "replica/boxed_tensors.h"
#include "replica/catch_up.h"
#include "replica/limits.h"
#include "replica/replica_base.h"
#include "replica/tensor_set.h"

namespace deltawire {

inline constexpr const char* kGivenTensors = "the given tensors";

struct TensorReplicaCore : ReplicaBase {
  TensorReplicaCore(std::shared_ptr<Store> the_store, TensorReplicaOptions the_options)
      : ReplicaBase(
            std::move(the_store),
            {kGivenTensors, the_options.repair, the_options.accept.at_least, the_options.progress},
            the_options.limits),
        options(std::move(the_options)) {}

  const TensorReplicaOptions options;
  std::optional<WorkFolder> scratch;
  std::vector<CheckpointTensor> forms;  // of whole tensors, sorted by name, without bytes
  std::vector<uint64_t> sizes;          // sizes of those tensors
  HeldNow now;                          // whole tensors in the host's memory
  TensorMemory memory = share_tensor_memory(kUsualMemory);
  std::unique_ptr<SpillSpace> spill;                // what waits for commit()
  std::array<std::unique_ptr<ArraySet>, 2> arrays;  // by kind of memory; null if there are none
  std::unique_ptr<BoxedTensors> boxed;              // null if all tensors are held whole
  std::vector<TensorSet*> sets;                     // all sets, in the order of commit()
  // By number in `forms`: the set with the tensor, or null if nothing of it is held.
  std::vector<TensorSet*> set_of;

  std::optional<Held> held;
  // the last held version; kept when a commit fails, so that nothing older is accepted
  std::optional<Held> proven;
  bool recognised = false;  // the initial contents were examined

  struct Pending {
    Held target;
    Manifest manifest;
    std::vector<size_t> staged;        // tensors to write
    std::optional<Checkpoint> source;  // whole contents point into this
    PullReport report;
  };
  std::optional<Pending> pending;

  // tensor_replica.cpp
  Status open(std::vector<LiveTensor> tensors);
  Result<std::optional<uint64_t>> head() override;
  Result<PullReport> prepare(const PullGoal& goal);
  Result<PullReport> commit();
  Status recognise(const PullGoal& goal, PullReport* report, PhaseClock* clock) override;
  Result<std::optional<Held>> held_version() const override { return held; }
  Result<std::optional<Held>> bound_to() const override { return proven; }
  std::optional<Identity> identity() const;  // of what is held
  Status check_usable(uint64_t wanted, PullReport* report) override;
  Result<HeldNow> held_now() const override { return now; }
  std::unique_ptr<CatchUpSink> make_sink(Attempt* attempt) override;
  void abandon() override;
  void keep_report(PullReport* report) override;
  // The version's tensors must be exactly the given ones, so that their numbers in the schema and
  // in `forms` agree.
  Status check_forms(const Schema& schema) const;
  enum class When : uint8_t { kBefore, kWritten };
  Status check_digests(const std::vector<size_t>& which, const Manifest& manifest,
                       When when = When::kBefore);
  Status add_tensor(std::span<const LiveTensor> boxes, size_t* next_box);
  Result<ArraySet*> arrays_for(const LiveTensor& tensor);
  // The tensors that are at least partly held.
  std::vector<size_t> held_tensors() const;
  void drop();
  std::filesystem::path parts_folder() const { return scratch->path() / "parts"; }
};

struct TensorReplica::Impl : TensorReplicaCore {
  using TensorReplicaCore::TensorReplicaCore;
};

// Catching up in the caller's memory: stages the differences in the sets of tensors (tensor_set.h).
class TensorSink final : public CatchUpSink {
 public:
  TensorSink(TensorReplicaCore* replica, Attempt* attempt)
      : replica_(*replica), attempt_(*attempt) {}

  Status begin() override;
  Status look_at_plan() override;
  Result<bool> is_there() override;
  std::filesystem::path work_folder() const override { return replica_.parts_folder(); }
  Result<bool> open_held() override { return true; }
  HeldTensors held() const override { return {kGivenTensors, replica_.forms}; }
  // A GPU is fastest when it gets all steps together.
  bool takes_steps_early() const override { return !replica_.arrays[size_t(Memory::kCuda)]; }
  Status stage(const ReadySteps& ready) override;
  Status build(FetchedVersion version) override;
  Status finish() override;

 private:
  Status stage_newer(const TensorSteps& steps);

  TensorReplicaCore& replica_;
  Attempt& attempt_;
};

}  // namespace deltawire
