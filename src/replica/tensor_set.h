// Tensors of a TensorReplica, by how they are held: arrays in the host's memory (tensor_set.h) or
// in a GPU's (device_tensors.h), and tensors of which only boxes are (boxed_tensors.h). All of a
// call are handed over together, so that a set can work on them side by side.
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

// Tensors go by their number in the schema of every version that is applied. One thread.
class TensorSet {
 public:
  virtual ~TensorSet() = default;

  // BaseMismatch, naming the first that is not what the manifest says.
  virtual Status check(std::span<const size_t> which, const Manifest& manifest) = 0;

  // Makes ready what `steps` lead to. The base is proven, and what is there stays as it is:
  // BaseMismatch and Corruption as in stage.h. What `steps` point to may go when it returns.
  virtual Status stage(std::span<const TensorSteps> steps, const Target& target,
                       const Progress& progress) = 0;
  // The same for contents that are proven already and outlive commit().
  virtual Status stage_whole(size_t number, Bytes contents) = 0;
  virtual uint64_t num_staged() const = 0;                    // elements that will be written
  virtual uint64_t staged_device_bytes() const { return 0; }  // of a GPU's memory, until commit()

  // Writes what was made ready. After a failure the contents are undefined.
  virtual Status commit() = 0;
  // check() of what commit() has written.
  virtual Status check_written(std::span<const size_t> which, const Manifest& manifest) {
    return check(which, manifest);
  }
  // What commit() could leave for later: before anything else is asked.
  virtual Status settle() { return {}; }
  virtual void drop() noexcept = 0;  // what was made ready and not committed
  virtual void forget() noexcept {}  // what the contents are: somebody may have written to them
};

// A change of an array's bytes, from `begin` on.
struct ArrayChange {
  uint64_t begin = 0, size_bytes = 0;
  CodecId codec = CodecId::kRaw;
  Bytes payload;  // outlives commit()
  uint64_t num_changed = 0;
  Layout layout = {};  // of those bytes; unknown: not of matrices
};

struct ArrayDigest {
  size_t number = 0;
  Digest digest;
};

// Arrays in one piece: whole tensors, and behind their numbers boxes of others.
class ArraySet : public TensorSet {
 public:
  virtual void add(size_t number, LiveTensor tensor) = 0;

  // A change in absolute values, sound for sure. From any thread, as long as no two change the same
  // array; changes of one array do not meet.
  virtual Status stage_change(size_t number, const ArrayChange& change) = 0;
  // BaseMismatch, naming the first whose contents have another digest.
  virtual Status check_arrays(std::span<const ArrayDigest> expected) = 0;
  virtual Status read(size_t number, MutableBytes out) = 0;  // all of it
};

// "tensor "w"", "tensor "w", box 0,0+8,4": for messages.
std::string place_of(const LiveTensor& tensor);

// Copies all of `from`.
void copy_parallel(Bytes from, MutableBytes to, ThreadPool* pool);

// BaseMismatch unless they are equal.
Status check_digest(const std::string& place, const Digest& got, const Manifest& manifest,
                    size_t number);
Status check_digest(const LiveTensor& tensor, const Digest& got, const Digest& expected);

// Tensors in the host's memory.
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
