// `model.safetensors.index.json`: which file of a sharded checkpoint holds which tensor.
// Pure but for write_index(); thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

inline constexpr std::string_view kIndexFileName = "model.safetensors.index.json";
inline constexpr uint64_t kMaxIndexBytes = 100'000'000;

struct IndexEntry {
  std::string tensor;
  std::string file;  // a plain file name, never a path

  bool operator==(const IndexEntry&) const = default;
};

// The weight map, sorted by tensor. `metadata`, its `total_size` and keys that are not known here
// are skipped whatever they hold: peers write wrong sizes. Corruption for everything else.
Result<std::vector<IndexEntry>> parse_index(std::string_view json);

// As Hugging Face writes it: keys sorted, indented by 2, ASCII, a newline at the end.
// InvalidArgument for what parse_index would refuse.
Result<std::string> serialise_index(const std::vector<IndexEntry>& entries, uint64_t total_bytes);

// Writes `folder`/model.safetensors.index.json whole or not at all.
Status write_index(const std::filesystem::path& folder, const std::vector<IndexEntry>& entries,
                   uint64_t total_bytes);

}  // namespace deltawire
