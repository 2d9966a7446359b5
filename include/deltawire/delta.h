// Deltas between checkpoints: make one, look into it, apply it, prove the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deltawire/digest.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

inline constexpr uint64_t kDefaultPartBytes = uint64_t{1} << 30;

struct DiffOptions {
  std::string codec = "auto";  // or the name of one
  unsigned threads = 0;        // 0: one per core
  uint64_t part_bytes = kDefaultPartBytes;
  Progress progress;
};

struct DiffReport {
  uint64_t num_tensors = 0;  // of the new checkpoint
  uint64_t num_changed_tensors = 0, num_added = 0, num_removed = 0;
  uint64_t num_elements = 0;   // compared, as codecs see them
  uint64_t num_changed = 0;    // elements
  uint64_t weights_bytes = 0;  // of the new checkpoint
  uint64_t delta_bytes = 0;    // of all files of the delta
  uint64_t whole_bytes = 0;    // of it, payloads of tensors that are carried whole
  uint64_t num_parts = 0;
  Digest base, target;
  // Keys of `__metadata__` that differ. A delta carries tensors only: what it is applied to keeps
  // its own metadata, and the files beside the weights.
  std::vector<std::string> metadata_changed;
};

// Writes what changed between two checkpoints to `out`: a single part when it ends in
// ".safetensors", else a folder of parts with an index. Memory beyond the mapped inputs is a few
// blocks per thread and the payloads of one part. `out` appears whole or not at all; a file there
// is replaced, a folder must be new or empty, and neither may be an input (InvalidArgument).
Result<DiffReport> diff_checkpoints(const std::filesystem::path& old_path,
                                    const std::filesystem::path& new_path,
                                    const std::filesystem::path& out, const DiffOptions& options);

struct ApplyOptions {
  unsigned threads = 0;
  Progress progress;
};

struct ApplyReport {
  uint64_t num_tensors = 0, num_patched = 0, num_added = 0, num_removed = 0;
  uint64_t num_changed = 0;  // elements
  uint64_t weights_bytes = 0;
  Digest target;
  // Whether the delta states the digest of the result. The parts of a chain leave that to their
  // manifest, so applying a single part checks only its tensors.
  bool target_known = true;
};

// Writes to `out` the checkpoint that `delta` makes of `base`. BaseMismatch, before a byte is
// written, when `base` is not what the delta was made from. Every changed tensor is checked against
// its digest before `out` appears. Same shards, headers (with their `__metadata__`), permission
// bits and files beside the weights as `base`, unless tensors came, went or changed their shape.
// `out` is a file if `base` is one, and may be `base` itself; else a folder, new or empty.
Result<ApplyReport> apply_delta(const std::filesystem::path& delta,
                                const std::filesystem::path& base, const std::filesystem::path& out,
                                const ApplyOptions& options);

// The first element of a tensor that differs.
struct FirstDifference {
  std::string file;  // of the second checkpoint
  Shape coordinate;
  std::string old_bits, new_bits;  // hex, most significant digit first
};

struct TensorDifference {
  std::string tensor;
  std::string what;  // "only in A", "dtype", ...; empty when elements differ
  uint64_t num_different = 0, num_elements = 0;
  std::optional<FirstDifference> first;
};

struct VerifyReport {
  uint64_t num_tensors = 0;  // in either
  uint64_t num_elements = 0, num_different = 0;
  uint64_t weights_bytes = 0;
  std::vector<TensorDifference> differences;  // sorted by tensor; empty: bit-identical
};

// Compares bit by bit.
Result<VerifyReport> verify_checkpoints(const std::filesystem::path& a,
                                        const std::filesystem::path& b,
                                        const ApplyOptions& options);

// ---- for ranks of a sharded trainer: a part from tensors in memory

// One tensor, or one rank's box of it, before and after.
struct TensorChange : TensorSpec {
  Box box;                                        // default: all of it
  std::span<const uint8_t> old_bytes, new_bytes;  // the box's contents
};

// Writes one part that covers `changes`. `base` and `target` are the state digests of the version
// that the part belongs to; all parts of a delta carry the same.
Result<DiffReport> write_part(const std::filesystem::path& out,
                              const std::vector<TensorChange>& changes, const Digest& base,
                              const Digest& target, const DiffOptions& options);

// The entry of a delta for one tensor, or for one box of it.
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
