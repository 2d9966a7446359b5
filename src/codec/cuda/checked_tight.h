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
  // Of each chunk: where on the device it stays, decoded, until it is written; null: it does not,
  // and is decoded again.
  std::vector<uint8_t*> places;
  Buffer payload;  // of chunks that do not stay, pinned, if an apply follows or there are regions
  bool good = false;  // the check has passed

  bool all_stay() const;

  bool is_of(std::span<const NumberedPatch> others) const;
};

// Finds places on the device for as many chunks as options.keep_bytes has room for. Where the
// device has no memory after all, none of them stays.
Status place_chunks(const DeviceOptions& options, CheckedTight* checked);

// Copies the payloads of chunks that do not stay to pinned memory, each in one piece. Those that
// are too large for that are left where they are.
Status gather_payloads(const DeviceOptions& options, CheckedTight* checked);

}  // namespace deltawire::cuda
