// What the host has found out of patches of `tight`: made by a check, used again by the apply that
// follows it, so that nothing is read twice while an engine pauses.
#pragma once

#include <span>
#include <vector>

#include "codec/cuda/device_parts.h"
#include "codec/cuda/tight_chunks.h"
#include "codec/cuda/tight_prepare.h"
#include "codec/cuda/workspace.h"

namespace deltawire::cuda {

struct CheckedTight {
  std::vector<NumberedPatch> patches;
  PreparedPatches prepared;
  ChunkPlan plan;
  Buffer payload;     // all chunks', pinned, if an apply follows
  bool good = false;  // the check has passed

  bool is_of(std::span<const NumberedPatch> others) const;
};

// Copies the payloads of all chunks to pinned memory, each in one piece. Those that are too large
// for that stay where they are.
Status gather_payloads(const DeviceOptions& options, CheckedTight* checked);

}  // namespace deltawire::cuda
