// `model.safetensors.index.json` of a slime version: what it is, and which part has which tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "dialect/checksum.h"
#include "dialect/dialect.h"
#include "tensor/sharded_index.h"

namespace deltawire::slime {

// Names and words of slime's files, generations 2 and 3, which miles also uses. The reader and the
// writer share them.
//
//   weight_v{N:06d}/                       N from 1
//     model-{i:05d}-of-{n:05d}.safetensors one or more parts: HF name -> U8[zstd frame], or, in a
//                                          full checkpoint, the tensors themselves
//       __metadata__                       HF name -> hex digest of the whole new tensor
//     model.safetensors.index.json         put last: {"metadata": {...}, "weight_map": {...}}
//
// A version is a delta if and only if the index's metadata has `delta_encoding`.

inline constexpr std::string_view kFolderBegin = "weight_v";
inline constexpr std::string_view kPartEnd = ".safetensors";
inline constexpr std::string_view kXor = "xor";
inline constexpr std::string_view kOverwrite = "overwrite";
inline constexpr std::string_view kFull = "full";
inline constexpr std::string_view kCompression = "zstd";

std::string version_text(uint64_t version);  // "000012"
std::string folder_name(uint64_t version);   // "weight_v000012"
std::string index_name(uint64_t version);    // "weight_v000012/model.safetensors.index.json"
// "model-00002-of-00007.safetensors"
std::string part_name(uint64_t index, uint64_t count);
// The version of a folder; none for names that folder_name() does not make.
std::optional<uint64_t> parse_folder_name(std::string_view name);

struct Delta {
  uint64_t base = 0;
  bool overwrite = false;  // else xor
  ChecksumKind checksum = ChecksumKind::kXxh3_128;
};

struct Index {
  std::optional<Delta> delta;       // none: a full checkpoint
  std::vector<IndexEntry> entries;  // sorted by tensor
};

// Corruption if a key is missing or contradicts another key or `version`, which is the folder's;
// Unsupported for unknown encodings, compressions and checksums.
Result<Index> parse_slime_index(std::string_view json, uint64_t version);

// Corruption names the tensor that is missing, in two files or not in the index, and the part that
// is missing or damaged. NotFound when the folder is missing or has no index, which is written
// last.
Result<std::unique_ptr<ForeignVersion>> open_version(Store& store, uint64_t version);

}  // namespace deltawire::slime
