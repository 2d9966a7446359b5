// Patches of `adaptive`, which has no kernels: the host decodes them against old arrays, fetched
// through pinned memory, into a form that the device can write.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "codec/cuda/workspace.h"
#include "device/cuda.h"

namespace deltawire::cuda {

// A payload of `gaps`, which the device can scatter; or the new array, if that is not much larger
// or the number of changes is unknown.
struct DecodedPatch {
  bool whole = false;
  std::vector<uint8_t> bytes;  // empty: nothing changes
};

// A patch and its number in the call, for messages.
struct HostPatch {
  const Codec* codec = nullptr;
  const Patch* patch = nullptr;
  size_t number = 0;
};

// Decoded patches of a check, kept in host memory for the apply that follows, up to `most_bytes`.
// Others are decoded again.
class CheckedPatches {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{2} << 30;
  explicit CheckedPatches(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  void keep(const Patch& patch, DecodedPatch decoded);
  // None: not kept, or taken already.
  std::optional<DecodedPatch> take(const Patch& patch);
  void clear() noexcept;
  uint64_t size_bytes() const noexcept { return size_bytes_; }

 private:
  // Identifies a patch by the addresses of array and payload.
  using Key = std::pair<const void*, const void*>;
  struct Kept {
    Patch patch;
    DecodedPatch decoded;
  };

  uint64_t most_bytes_, size_bytes_ = 0;
  std::map<Key, Kept> kept_;
};

class HostDecoder {
 public:
  HostDecoder(Workspace* workspace, ThreadPool* pool, Stream stream)
      : workspace_(*workspace), pool_(pool), stream_(stream) {}

  // Decodes the first patches, as many as are processed in parallel, but at least one. Writes
  // nothing. Waits.
  Result<std::vector<DecodedPatch>> decode_some(std::span<const HostPatch> patches);

 private:
  Status fetch_large(const DeviceArray& array, uint8_t* to);

  Workspace& workspace_;
  ThreadPool* const pool_;
  const Stream stream_;
};

}  // namespace deltawire::cuda
