// Tensors in a GPU's memory: patched in place from the payloads themselves, with nothing dense in
// between.
//
// prepare() proves that what is there is what the payloads were made for, and that they are sound;
// what they lead to is proven by commit(), when it has been written. A tensor that comes in other
// boxes than runs of rows, or whole, is built on the host.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_pool.h"
#include "device/cuda.h"
#include "replica/limits.h"
#include "replica/tensor_set.h"

namespace deltawire {

class DeviceTensors final : public ArraySet {
 public:
  // On the device of `first`, which is still to be added. `scratch` and `spill` as in
  // tensor_set.h.
  static Result<std::unique_ptr<DeviceTensors>> open(const TensorReplicaOptions& options,
                                                     const LiveTensor& first, ThreadPool* pool,
                                                     std::filesystem::path scratch,
                                                     StageMemory memory, SpillSpace* spill);

  void add(size_t number, LiveTensor tensor) override;
  Status check(std::span<const size_t> which, const Manifest& manifest) override;
  Status stage(std::span<const TensorSteps> steps, const Target& target,
               const Progress& progress) override;
  Status stage_whole(size_t number, Bytes contents) override;
  uint64_t num_staged() const override { return num_staged_; }
  uint64_t staged_device_bytes() const override { return context_.kept_bytes(); }
  Status commit() override;
  Status check_written(std::span<const size_t> which, const Manifest& manifest) override;
  void drop() noexcept override;
  Status stage_change(size_t number, const ArrayChange& change) override;
  Status check_arrays(std::span<const ArrayDigest> expected) override;
  Status read(size_t number, MutableBytes out) override;

 private:
  // An entry of a delta, kept until commit().
  struct Change {
    size_t number;  // of its tensor
    ArrayChange change;
  };
  struct Whole {
    size_t number;
    Bytes contents;
  };

  DeviceTensors(cuda::Context context, cuda::Stream stream, ThreadPool* pool,
                std::filesystem::path scratch, StageMemory memory, bool read_again,
                SpillSpace* spill)
      : context_(std::move(context)),
        stream_(stream),
        pool_(pool),
        scratch_(std::move(scratch)),
        memory_(memory),
        read_again_(read_again),
        spill_(spill) {}

  Status fetch(const LiveTensor& tensor, MutableBytes out);
  Status check_base(std::span<const TensorSteps* const> steps);
  Status stage_on_host(const TensorSteps& steps, const Target& target);
  std::vector<cuda::Patch> patches_of(std::span<const Change> changes, size_t first) const;

  cuda::Context context_;
  const cuda::Stream stream_;
  ThreadPool* const pool_;
  const std::filesystem::path scratch_;
  const StageMemory memory_;
  const bool read_again_;  // what commit() has written, to prove it
  SpillSpace* const spill_;
  std::mutex mutex_;  // of what stage_change() adds to
  std::map<size_t, LiveTensor> tensors_;
  // Changes of a turn are of different bytes: they can be written side by side.
  std::vector<std::vector<Change>> turns_;
  std::vector<Whole> wholes_;
  uint64_t num_staged_ = 0;
  std::map<size_t, Digest> written_;  // what commit() knows of tensors that it has written
};

}  // namespace deltawire
