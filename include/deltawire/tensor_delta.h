// A delta between two states in memory: make one, look into it, keep it in a file, apply it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deltawire/box.h"
#include "deltawire/delta.h"
#include "deltawire/digest.h"
#include "deltawire/live_tensor.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

// What a delta says of one tensor, or of one box of it.
struct TensorDeltaEntry {
  std::string tensor;
  DType dtype = DType::kU8;
  Shape shape;  // of the tensor
  Box box;
  std::string codec;
  bool whole = false;  // the base has no such tensor: this brings it
  uint64_t num_changed = 0, num_elements = 0;
  uint64_t payload_bytes = 0;
};

// A handle; copies share the delta. Immutable: any number of threads may read.
class TensorDelta {
 public:
  // What changed between two states, each all tensors of a model, in any order. Payloads are held
  // in memory; the states are not needed afterwards. InvalidArgument when sizes do not fit dtypes
  // and shapes, or a name comes twice.
  static Result<TensorDelta> diff(std::span<const TensorView> old_state,
                                  std::span<const TensorView> new_state,
                                  const DiffOptions& options);
  // A delta on disk, a part or a folder with an index, checked.
  static Result<TensorDelta> open(const std::filesystem::path& path);

  // The same as diff_checkpoints() would write: a single part when `out` ends in ".safetensors",
  // else a folder. Of the options, `part_bytes` and `progress` count.
  Status save(const std::filesystem::path& out, const DiffOptions& options) const;

  // Patches `state`, all tensors of the model in any order, in place. Nothing is written before
  // everything is decoded and proven, at both ends: BaseMismatch when the tensors are not what the
  // delta was made from, Corruption when it does not lead where it says. What changes is held in
  // memory meanwhile. Unsupported for tensors that are not in host memory. InvalidArgument when
  // tensors come, go or change their form: that is for apply_delta().
  Result<ApplyReport> apply(std::span<const LiveTensor> state, const ApplyOptions& options) const;

  const std::vector<TensorDeltaEntry>& entries() const noexcept;  // sorted by tensor, then by box
  const std::vector<std::string>& removed() const noexcept;       // tensors that go
  const Digest& base() const noexcept;                            // state digests
  const Digest& target() const noexcept;  // of size 0 in parts of a chain's version
  uint64_t payload_bytes() const noexcept;

 private:
  struct Impl;
  explicit TensorDelta(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace deltawire
