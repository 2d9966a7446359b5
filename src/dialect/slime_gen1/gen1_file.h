// One file of a version: the changes of some parameters, all their positions in one array of bytes
// (`__positions__`) and all their values in another (`__values__`).
//
//   encoding   indices: absolute int32. deltas: gaps of 2 or 4 bytes, a width for each parameter.
//              deltas_zstd: the same, the whole safetensors file inside one zstd frame
//   params     JSON list: name, dtype, shape, pos_start, pos_end, pos_width, val_start, val_end;
//              pos_* count bytes, val_* elements
//   checksum   see gen1_values.h. Older files have none; they name a prev_version instead
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dialect/foreign_file.h"
#include "dialect/sparse_changes.h"
#include "tensor/safetensors.h"

namespace deltawire::gen1 {

inline constexpr std::string_view kPositions = "__positions__";
inline constexpr std::string_view kValues = "__values__";
inline constexpr std::string_view kIndices = "indices";
inline constexpr std::string_view kDeltas = "deltas";
inline constexpr std::string_view kDeltasZstd = "deltas_zstd";
inline constexpr std::string_view kChecksum = "xor";  // our word: theirs has no name

// What a frame may claim to hold: real ones shrink to half. The bound keeps a bomb from being
// worth anything; files under kSmallContent may be as regular as they like.
inline constexpr uint64_t kMaxRatio = 64;
inline constexpr uint64_t kSmallContent = uint64_t{1} << 30;

struct Param {
  TensorSpec spec;
  SparsePositions positions;  // into the file's bytes
  Bytes values;               // in the file's dtype
};

// Bytes live as long as `file` and `content`.
struct File {
  ForeignFile file;
  std::shared_ptr<uint8_t[]> content;  // of the zstd frame, where the file is one
  std::string encoding;
  uint64_t version = 0;
  std::optional<uint64_t> base;
  bool has_checksum = true;
  DType values_dtype = DType::kBF16;
  std::vector<Param> params;
};

// Checks all that can be known without the tensors: the frame, the layout, that parameters fill
// both arrays without overlap, each position against the parameter's shape, and the checksum.
Result<File> open_file(ForeignFile file);

// The values of `param` in its own dtype.
Result<std::vector<uint8_t>> param_values(const File& file, const Param& param);

}  // namespace deltawire::gen1
