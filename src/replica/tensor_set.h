// The tensors of a TensorReplica, grouped by how they are held: arrays in host memory
// (HostTensors), arrays on a GPU (device_tensors.h), and tensors of which only boxes are held
// (boxed_tensors.h). Calls pass all their tensors together, so that a set can process them in
// parallel.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/delta.h"
#include "deltawire/status.h"
#include "deltawire/tensor_replica.h"
#include "format/manifest.h"
#include "replica/ahead.h"
#include "replica/limits.h"
#include "replica/tensors.h"

namespace deltawire {

// Tensors are identified by their numbers in the schema. One thread.
class TensorSet {
 public:
  virtual ~TensorSet() = default;

  // BaseMismatch, naming the first tensor that does not match the manifest.
  virtual Status check(std::span<const size_t> which, const Manifest& manifest) = 0;

  // Stages the result of `steps`. Proves the base and does not change the tensors. Errors are those
  // of stage.h. What `steps` point to may be freed afterwards.
  virtual Status stage(std::span<const TensorSteps> steps, const Target& target,
                       const Progress& progress) = 0;
  // The same for contents that are already proven and outlive commit().
  virtual Status stage_whole(size_t number, Bytes contents) = 0;
  virtual uint64_t num_staged() const = 0;                    // elements that commit() will write
  virtual uint64_t staged_device_bytes() const { return 0; }  // GPU memory held until commit()

  // Writes what was staged. After a failure the contents are undefined.
  virtual Status commit() = 0;
  // Like check(), for what commit() has written.
  virtual Status check_written(std::span<const size_t> which, const Manifest& manifest) {
    return check(which, manifest);
  }
  // Work that commit() postponed. Called before anything else.
  virtual Status settle() { return {}; }
  virtual void drop() noexcept = 0;  // what was staged
  virtual void forget() noexcept {}  // invalidates what is known of the contents
};

// A change of an array's bytes, starting at `begin`.
struct ArrayChange {
  uint64_t begin = 0, size_bytes = 0;
  CodecId codec = CodecId::kRaw;
  Bytes payload;  // outlives commit()
  uint64_t num_changed = 0;
  Layout layout = {};  // of those bytes; empty if they are not matrices
};

struct ArrayDigest {
  size_t number = 0;
  Digest digest;
};

// Contiguous arrays: whole tensors, and after their numbers boxes of others.
class ArraySet : public TensorSet {
 public:
  virtual void add(size_t number, LiveTensor tensor) = 0;

  // Stages a sound change in absolute values. Thread-safe for different arrays. Changes of one
  // array must not overlap.
  virtual Status stage_change(size_t number, const ArrayChange& change) = 0;
  // BaseMismatch, naming the first array whose digest differs.
  virtual Status check_arrays(std::span<const ArrayDigest> expected) = 0;
  virtual Status read(size_t number, MutableBytes out) = 0;  // the whole array
};

// For messages: "tensor "w"" or "tensor "w", box 0,0+8,4".
std::string place_of(const LiveTensor& tensor);

// BaseMismatch unless they are equal.
Status check_digest(const std::string& place, const Digest& got, const Manifest& manifest,
                    size_t number);
Status check_digest(const LiveTensor& tensor, const Digest& got, const Digest& expected);

// Tensors in the host's memory.
class HostTensors final : public ArraySet {
 public:
  // `scratch`: a folder for copies of tensors too large for memory. `spill`: space for what waits
  // for commit().
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
