// Pairs of arrays of which the old ones lie in pinned host memory. They are shared out to several
// lanes: while one fits models or fetches payloads, the bus brings what the others need.
//
// A lane takes the next few arrays and copies their old state to the device: some 32 MB at a time,
// in turns, so that small copies of other lanes get through between. Where there is no room for
// that, kernels read host memory themselves: once in `gaps`; `adaptive` looks again
// at elements that changed, `tight` at what its models are fitted to, a few per cent of a large
// array.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "codec/cuda/device_codec.h"
#include "codec/cuda/workspace.h"
#include "device/shared_scratch.h"

namespace deltawire::cuda {

// What one strand of work has for itself: a call of a Context, or one of several that a call is
// shared out to.
struct Lane {
  Workspace* workspace = nullptr;
  ThreadPool* pool = nullptr;
  uint64_t scratch_bytes = 0;
  bool within_scratch = false;  // see DeviceOptions
  SpareVectors* spare = nullptr;

  DeviceOptions codec_options() const {
    DeviceOptions options;
    options.scratch_bytes = scratch_bytes;
    options.workspace = workspace;
    options.pool = pool;
    options.spare = spare;
    options.within_scratch = within_scratch;
    return options;
  }
};

// How scratch is shared out. What is left over is for tables.
struct LaneSizes {
  size_t num_lanes;
  uint64_t stage;  // where old arrays are brought to; of all lanes
  uint64_t work;   // the scratch of a lane
  uint64_t group;  // that a lane takes at a time; a larger array comes alone
  uint64_t large;  // the most that is staged, and scratch of the stage for a lane that needs more

  uint64_t memory() const noexcept { return stage + num_lanes * work; }
};
LaneSizes lane_sizes(uint64_t scratch_bytes, unsigned threads) noexcept;

// One call at a time.
class Lanes {
 public:
  // `threads` of the host are shared out too.
  Lanes(int device, uint64_t scratch_bytes, unsigned threads);
  ~Lanes();

  // Codes pairs [first, first + pairs.size()) on this stream and waits. From several threads at
  // once, each with a lane of its own. Called again for the same pairs, with more scratch, if it
  // says OutOfMemory.
  using Encode = std::function<Status(const Lane& lane, size_t first,
                                      std::span<const DevicePair> pairs, Stream stream)>;
  // Calls it for all pairs, in groups, after what `stream` has been given so far. `memory` is
  // device memory, sizes().memory() bytes, aligned to 256. Of several failures the one of the first
  // pairs is returned.
  Status for_each_group(std::span<const DevicePair> pairs, uint8_t* memory, Stream stream,
                        const Encode& encode);

  const LaneSizes& sizes() const noexcept { return sizes_; }
  uint64_t device_bytes() const noexcept;  // beside the memory that is given

 private:
  struct Strand;
  class Call;

  const int device_;
  const LaneSizes sizes_;
  ThreadPool pool_;         // a worker for each lane
  const unsigned threads_;  // of each
  std::vector<std::unique_ptr<Strand>> strands_;
};

}  // namespace deltawire::cuda
