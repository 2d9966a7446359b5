// Tensors in the host's memory.
#pragma once

#include <filesystem>
#include <map>
#include <vector>

#include "base/thread_pool.h"
#include "replica/ahead.h"
#include "replica/memory_shares.h"
#include "replica/spill_space.h"
#include "replica/tensor_set.h"

namespace deltawire {

class HostTensors final : public ArraySet {
 public:
  // `scratch`: a folder for copies of tensors too large for memory, when they need one. `spill`:
  // for what waits for commit().
  HostTensors(ThreadPool* pool, std::filesystem::path scratch, StageMemory memory,
              SpillSpace* spill, Ahead* ahead)
      : pool_(pool), scratch_(std::move(scratch)), memory_(memory), spill_(spill), ahead_(ahead) {}

  void add(size_t number, LiveTensor tensor) override;
  Status check(std::span<const size_t> which, const Manifest& manifest) override;
  Status stage(std::span<const TensorSteps> steps, const Target& target,
               const Progress& progress) override;
  Status stage_whole(size_t number, Bytes contents) override;
  uint64_t num_staged() const override;
  Status commit() override;
  void drop() noexcept override;
  Status stage_change(size_t number, const ArrayChange& change) override;
  Status check_arrays(std::span<const ArrayDigest> expected) override;
  Status read(size_t number, MutableBytes out) override;

 private:
  struct Tensor {
    LiveTensor live;
    std::vector<ArrayChange> staged = {};
    Bytes whole = {};
  };
  Status stage_one(const TensorSteps& steps, const Target& target, ThreadPool* inner);
  static Status write(const Tensor& tensor, ThreadPool* inner);

  ThreadPool* const pool_;
  const std::filesystem::path scratch_;
  const StageMemory memory_;
  SpillSpace* const spill_;
  Ahead* const ahead_;
  std::map<size_t, Tensor> tensors_;
};

}  // namespace deltawire
