// Deltas between checkpoints: make one, look into it, apply it, prove the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/box.h"
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
  // Whether the delta said what the result's state must be. The parts of a chain's versions leave
  // that to their manifest: of one applied by itself only its tensors are proven.
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
struct TensorChange {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;                                    // of the whole tensor
  Box box;                                        // default: all of it
  std::span<const uint8_t> old_bytes, new_bytes;  // the box's contents
};

// Writes one part that covers `changes`. `base` and `target` are the state digests of the version
// that the part belongs to; all parts of a delta carry the same.
Result<DiffReport> write_part(const std::filesystem::path& out,
                              const std::vector<TensorChange>& changes, const Digest& base,
                              const Digest& target, const DiffOptions& options);

}  // namespace deltawire
