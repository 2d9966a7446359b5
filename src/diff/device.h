// The GPU with a publisher's tensors and their committed state.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "deltawire/limits.h"
#include "deltawire/status.h"
#include "deltawire/store.h"
#include "device/cuda.h"
#include "diff/coded_array.h"
#include "diff/computed_tensors.h"
#include "diff/fetched_pieces.h"
#include "diff/kept_changes.h"

namespace deltawire {

// Thread-safe: calls take turns, while one encodes and uploads read tensors.
class PublishDevice : public std::enable_shared_from_this<PublishDevice> {
 public:
  // Uses the device of the first tensor that is on one. `pinned`: keeps the committed state in
  // pinned host memory.
  static Result<std::shared_ptr<PublishDevice>> open(const Limits& limits,
                                                     const CudaOptions& options, bool pinned,
                                                     std::span<const PublishTensor> tensors);

  // A tensor of the committed state, released by its last owner.
  class Held {
   public:
    Held(std::shared_ptr<PublishDevice> device, cuda::DeviceSnapshot::Slot slot, uint64_t size)
        : device_(std::move(device)), slot_(slot), size_bytes_(size) {}
    ~Held() { device_->release(slot_); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

    uint64_t size_bytes() const noexcept { return size_bytes_; }
    bool pinned() const noexcept { return device_->pinned_; }
    Status read(MutableBytes out) const { return device_->read(slot_, out); }

   private:
    friend class PublishDevice;
    const std::shared_ptr<PublishDevice> device_;
    const cuda::DeviceSnapshot::Slot slot_;
    const uint64_t size_bytes_;
  };

  Result<std::shared_ptr<const Held>> hold(const PublishTensor& tensor);
  Result<std::shared_ptr<const Held>> hold(Bytes contents, DType dtype, const Layout& layout);

  struct Comparison {
    const Held* before;
    const PublishTensor* after;
  };
  // Includes digests of what was encoded.
  Result<std::vector<cuda::Coded>> encode(const std::string& codec,
                                          std::span<const Comparison> items);
  // Owns a payload of encode() and recycles its memory.
  Payload own(std::vector<uint8_t> payload) const;
  struct Step {
    const Held* held;
    const KeptChange* change;  // made by encode() from the current state
  };
  // After a failure the tensors are undefined.
  Status advance(std::span<const Step> steps);
  // Copies the tensors into the held state and returns the sum128 of what was written. Not for a
  // snapshot in host memory.
  Result<std::vector<Digest>> replace(std::span<const Comparison> items);
  bool pinned() const noexcept { return pinned_; }
  uint64_t wave_bytes() const noexcept { return wave_bytes_; }  // of weights compared at a time
  Result<std::vector<Digest>> digests(std::span<const PublishTensor* const> tensors);
  Result<std::vector<Digest>> digests(std::span<const Held* const> held);
  // What the tensors' boxes add to the sums of their tensors.
  Result<std::vector<Sums>> sums(std::span<const PublishTensor* const> tensors);
  // Reads the published bytes from `offset` on.
  Status fetch(const PublishTensor& tensor, uint64_t offset, MutableBytes out);
  FetchedPieces& pieces() noexcept { return pieces_; }
  // The published bytes as a body for a store.
  std::shared_ptr<const Body> body(const PublishTensor& tensor);
  // Coders for tensors that can be packed here, and their current digests.
  Result<CodedThere> code_there(std::span<const PublishTensor> tensors);
  Result<std::vector<exponents::BlockPlan>> plan(const PublishTensor& tensor);
  Status code(const PublishTensor& tensor, size_t first,
              std::span<const exponents::BlockPlan> plans, MutableBytes out);

 private:
  PublishDevice(cuda::Context context, const CudaOptions& options, bool pinned);
  // sum128 of all tensors: of FP8 blocks by quantising them, of the others by `look`, which gets
  // their numbers. Unless `elements` is empty, the elements of FP8 blocks go there.
  using LookAtOthers = std::function<Result<std::vector<Digest>>(
      std::span<const size_t> numbers, const std::vector<ComputedTensors::There>& there)>;
  Result<std::vector<Digest>> look_at(std::span<const PublishTensor* const> tensors,
                                      std::span<uint8_t* const> elements, const LookAtOthers& look);
  Status read(cuda::DeviceSnapshot::Slot slot, MutableBytes out);
  void release(cuda::DeviceSnapshot::Slot slot) noexcept;

  std::mutex mutex_;
  cuda::Context context_;
  cuda::DeviceSnapshot snapshot_;
  ComputedTensors computed_;
  FetchedPieces pieces_;
  // Pinned memory for coded arrays: on its way to host memory, it takes several threads.
  std::vector<cuda::DeviceBuffer> landings_{4};
  std::condition_variable landed_;
  const cuda::Stream stream_;
  const bool pinned_;
  const uint64_t wave_bytes_;
};

inline bool on_device(const PublishTensor& tensor) { return tensor.memory == Memory::kCuda; }

// Io, naming the tensor.
Status changed_on_device(const PublishTensor& tensor);

}  // namespace deltawire
