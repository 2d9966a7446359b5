// Catching up in the caller's memory: leaves what differs with the sets of tensors (tensor_set.h).
#pragma once

#include <filesystem>

#include "replica/catch_up.h"
#include "replica/tensor_replica_impl.h"

namespace deltawire {

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
  // A GPU is fastest with all of them at once.
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
