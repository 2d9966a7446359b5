// Compares pairs of arrays whose old contents are in pinned host memory. Several lanes work in
// parallel: while one fits models or fetches payloads, the bus transfers data for the others.
//
// A lane takes the next few arrays and copies their old contents to the device, some 32 MB at a
// time, so that small copies of other lanes get through. If there is no room, kernels read host
// memory themselves: once for `gaps`; `adaptive` reads changed elements again, and `tight` reads
// samples for its models, a few per cent of a large array.
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

// The resources of one strand of work: a call of a Context, or one lane of it.
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

// The shares of the scratch. The rest is for tables.
struct LaneSizes {
  size_t num_lanes;
  uint64_t stage;  // for copies of old arrays, shared by all lanes
  uint64_t work;   // scratch of each lane
  uint64_t group;  // limit of arrays per turn, unless a single one is larger
  uint64_t large;  // limit of staged arrays, and scratch for a lane that needs more

  uint64_t memory() const noexcept { return stage + num_lanes * work; }
};
LaneSizes lane_sizes(uint64_t scratch_bytes, unsigned threads) noexcept;

// One call at a time.
class Lanes {
 public:
  // `threads` of the host are divided among the lanes.
  Lanes(int device, uint64_t scratch_bytes, unsigned threads);
  ~Lanes();

  // Encodes pairs [first, first + pairs.size()) on this stream and waits. Called from several
  // threads, each with its own lane. After OutOfMemory called again with more scratch.
  using Encode = std::function<Status(const Lane& lane, size_t first,
                                      std::span<const DevicePair> pairs, Stream stream)>;
  // Calls `encode` for groups of all pairs, after earlier work on `stream`. `memory`:
  // sizes().memory() bytes of device memory, aligned to 256. Of several failures returns that of
  // the first pairs.
  Status for_each_group(std::span<const DevicePair> pairs, uint8_t* memory, Stream stream,
                        const Encode& encode);

  const LaneSizes& sizes() const noexcept { return sizes_; }
  uint64_t device_bytes() const noexcept;  // in addition to the given memory

 private:
  struct Strand;
  class Call;

  const int device_;
  const LaneSizes sizes_;
  ThreadPool pool_;         // one worker per lane
  const unsigned threads_;  // of each lane
  std::vector<std::unique_ptr<Strand>> strands_;
};

}  // namespace deltawire::cuda
