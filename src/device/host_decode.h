// Patches of `adaptive`, which has no kernels. The host decodes them, against old arrays that come
// through pinned memory, to what the device writes by itself.
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

// A payload of `gaps`, which is a scatter; or the new array, where that is not much larger, or
// nobody knows how many changes there are.
struct DecodedPatch {
  bool whole = false;
  std::vector<uint8_t> bytes;  // empty: nothing changes
};

// A patch of a call, and its number there, for messages.
struct HostPatch {
  const Codec* codec = nullptr;
  const Patch* patch = nullptr;
  size_t number = 0;
};

// What a check has decoded, for the apply that follows. Host memory, no more than `most_bytes`:
// what finds no room is decoded again.
class CheckedPatches {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{2} << 30;
  explicit CheckedPatches(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  void keep(const Patch& patch, DecodedPatch decoded);
  // None: it was not kept, or has been taken.
  std::optional<DecodedPatch> take(const Patch& patch);
  void clear() noexcept;
  uint64_t size_bytes() const noexcept { return size_bytes_; }

 private:
  // A patch is known by where its array and its payload are.
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

  // The first patches, as many as are decoded side by side: at least one, if there are any. Nothing
  // is written. Waits.
  Result<std::vector<DecodedPatch>> decode_some(std::span<const HostPatch> patches);

 private:
  Status fetch_large(const DeviceArray& array, uint8_t* to);

  Workspace& workspace_;
  ThreadPool* const pool_;
  const Stream stream_;
};

}  // namespace deltawire::cuda
