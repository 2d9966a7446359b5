// LOCAL/.deltawire/state.json: what the replica's folder holds, and how its files were left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/replica.h"
#include "deltawire/status.h"

namespace deltawire {

// Tells whether a file is as we left it, without reading it.
struct FileStamp {
  uint64_t size_bytes = 0, inode = 0;
  int64_t modified_ns = 0, changed_ns = 0;

  bool operator==(const FileStamp&) const = default;
};
Result<FileStamp> stamp_of(const std::filesystem::path& file);

// A file beside the weights as we left it.
struct HeldSide {
  std::string sha256;  // hex
  FileStamp stamp;

  bool operator==(const HeldSide&) const = default;
};

struct LocalState {
  ReplicaState replica;
  bool copy_on_write = false;
  std::map<std::string, FileStamp> weights;  // safetensors files and their index
  std::map<std::string, HeldSide> sides;     // the version's files beside them, as they were left
};

std::string serialise_local_state(const LocalState& state);
Result<LocalState> parse_local_state(std::string_view json);

// None when there is no such file.
Result<std::optional<LocalState>> read_local_state(const std::filesystem::path& file);
Status write_local_state(const std::filesystem::path& file, const LocalState& state);

// Stamps of `names` in `folder`.
Result<std::map<std::string, FileStamp>> stamp_files(const std::filesystem::path& folder,
                                                     const std::vector<std::string>& names);
// The first file that is not as it was left, or none: "model.safetensors was changed".
std::optional<std::string> find_edited(const std::filesystem::path& folder,
                                       const std::map<std::string, FileStamp>& left);

}  // namespace deltawire
