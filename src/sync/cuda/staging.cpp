#include "sync/cuda/staging.h"

#include "kernels/tight_math.h"

namespace deltawire::cuda {
namespace {

uint64_t size_bytes(const DevicePair& pair) { return pair.num_elements * pair.layout.width; }
uint64_t rounded(uint64_t num_bytes) { return (num_bytes + 255) / 256 * 256; }

// Half of the scratch, from then on.
Status make_room(Context::Impl& impl) {
  if (impl.staging.size() != 0) return {};
  const uint64_t room = impl.options.scratch_bytes / 2;
  impl.workspace.limit(Workspace::kSlots, impl.options.scratch_bytes - room);
  DW_ASSIGN_OR_RETURN(impl.staging, Buffer::allocate(Place::kDevice, room));
  return {};
}

class Stager {
 public:
  Stager(std::span<const DevicePair> pairs, uint8_t* memory, uint64_t half_bytes, Stream stream)
      : pairs_(pairs), memory_(memory), half_bytes_(half_bytes), stream_(stream) {}

  struct Batch {
    size_t first = 0;
    std::vector<DevicePair> pairs;
  };

  bool done() const { return next_ == pairs_.size(); }

  // Begins to copy as many as fit the other half.
  Result<Batch> start() {
    Batch batch{next_, {}};
    uint8_t* const memory = memory_ + turn_++ % 2 * half_bytes_;
    uint64_t used = 0;
    for (; next_ < pairs_.size(); ++next_) {
      DevicePair pair = pairs_[next_];
      if (is_staged(pair)) {
        const uint64_t size = size_bytes(pair);
        if (used + size > half_bytes_) break;
        DW_RETURN_IF_ERROR(copy(memory + used, pair.old_data, size, stream_));
        pair.old_data = memory + used;
        used += rounded(size);
      }
      batch.pairs.push_back(pair);
    }
    return batch;
  }

 private:
  bool is_staged(const DevicePair& pair) const {
    return pair.num_elements > uint64_t{1} << tight::kBlockLog2 && size_bytes(pair) <= half_bytes_;
  }

  const std::span<const DevicePair> pairs_;
  uint8_t* const memory_;
  const uint64_t half_bytes_;
  const Stream stream_;
  size_t next_ = 0;
  unsigned turn_ = 0;
};

}  // namespace

Status for_each_staged(
    Context::Impl& impl, std::span<const DevicePair> pairs, Stream stream,
    const std::function<Status(size_t first, std::span<const DevicePair> batch)>& encode) {
  DW_RETURN_IF_ERROR(make_room(impl));
  DW_ASSIGN_OR_RETURN(const Stream copies, impl.workspace.stream(Workspace::kStaging));
  Stager stager(pairs, impl.staging.data(), impl.staging.size() / 2 / 256 * 256, copies);
  Stager::Batch next;
  if (!stager.done()) {
    DW_ASSIGN_OR_RETURN(next, stager.start());
  }
  while (!next.pairs.empty()) {
    const Stager::Batch batch = std::exchange(next, {});
    DW_RETURN_IF_ERROR(follow(stream, copies));
    if (!stager.done()) {
      DW_ASSIGN_OR_RETURN(next, stager.start());
    }
    DW_RETURN_IF_ERROR(encode(batch.first, batch.pairs));
  }
  return wait(copies);
}

}  // namespace deltawire::cuda
