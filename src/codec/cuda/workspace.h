// Memory and streams that a codec keeps from call to call: to allocate them takes longer than to
// use them.
#pragma once

#include <array>
#include <vector>

#include "kernels/cuda/memory.h"

namespace deltawire::cuda {

class Workspace {
 public:
  // What a piece is for. Each grows as needed; what it held is lost then, and at the next call.
  enum Use : uint8_t {
    kModels,
    kTables,
    kSlots,
    kCounts,
    kStatus,
    kHostCounts,
    kHostResults,
    kHostBytes,
    kNumUses
  };

  // At least `num_bytes` of device memory, or of pinned memory for the kHost ones.
  Result<uint8_t*> get(Use use, size_t num_bytes) {
    Buffer& buffer = buffers_[use];
    if (buffer.size() < num_bytes) {
      const Place place = use >= kHostCounts ? Place::kPinned : Place::kDevice;
      buffer = Buffer();  // first, so that both need not fit
      DW_ASSIGN_OR_RETURN(buffer, Buffer::allocate(place, num_bytes + num_bytes / 8));
    }
    return buffer.data();
  }

  // Gives back what is larger than `num_bytes`.
  void limit(Use use, size_t num_bytes) {
    if (buffers_[use].size() > num_bytes) buffers_[use] = Buffer();
  }
  size_t device_bytes() const noexcept {
    size_t sum = 0;
    for (size_t use = 0; use < kHostCounts; ++use) sum += buffers_[use].size();
    return sum;
  }

  Result<Stream> stream(size_t i) {
    while (streams_.size() <= i) {
      DW_ASSIGN_OR_RETURN(OwnedStream made, OwnedStream::create());
      streams_.push_back(std::move(made));
    }
    return streams_[i].get();
  }

 private:
  std::array<Buffer, kNumUses> buffers_;
  std::vector<OwnedStream> streams_;
};

}  // namespace deltawire::cuda
