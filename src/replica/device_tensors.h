// Tensors in a GPU's memory, patched in place directly from the payloads, without a dense copy.
//
// prepare() proves that the current contents match the payloads and that the payloads are sound.
// commit() proves the result after the write. A tensor that arrives whole, or in boxes that are not
// contiguous rows, is built on the host.
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
  // Uses the device of `first`, which must still be added. `scratch` and `spill` are as in
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
  const bool read_again_;  // read back what commit() wrote, to prove it
  SpillSpace* const spill_;
  std::mutex mutex_;  // guards what stage_change() adds to
  std::map<size_t, LiveTensor> tensors_;
  // Changes of one turn affect different bytes and can be written in parallel.
  std::vector<std::vector<Change>> turns_;
  std::vector<Whole> wholes_;
  uint64_t num_staged_ = 0;
  std::map<size_t, Digest> written_;  // digests of tensors that commit() wrote
};

}  // namespace deltawire
