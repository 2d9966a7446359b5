// What a delta makes of a checkpoint, file by file, before any of it is written.
#pragma once

#include <string>
#include <vector>

#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "format/state_digest.h"
#include "tensor/safetensors.h"

namespace deltawire {

// One tensor of the result: where its bytes come from and go to.
struct OutTensor {
  TensorSpec spec;
  const CheckpointTensor* from = nullptr;    // null: comes with the delta
  std::vector<const Delta::Entry*> entries;  // what patches or brings it
  uint64_t offset = 0, size = 0;             // in the new file
  Digest state;                              // of the result, for its state

  bool brought() const { return !entries.empty() && !entries[0]->entry.old_digest; }
};

struct OutFile {
  const CheckpointFile* from = nullptr;  // the base's file of the same name
  std::string header;
  std::vector<OutTensor> tensors;
  uint64_t size = 0;
};

struct ApplyPlan {
  std::vector<OutFile> files;
  bool relaid = false;  // tensors came, went or changed their form
};

// Points into `base` and `delta`. `before` are the states of the base's tensors: those that the
// delta leaves alone have theirs already.
Result<ApplyPlan> plan_apply(const Checkpoint& base, const Delta& delta,
                             const std::vector<TensorState>& before);

}  // namespace deltawire
