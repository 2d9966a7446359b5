// LOCAL/.deltawire/state.json: what the replica's folder holds, and how its files were left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/replica.h"
#include "deltawire/status.h"
#include "replica/file_stamp.h"

namespace deltawire {

// A file beside the weights as we left it.
struct HeldSide {
  std::string sha256;  // hex
  FileStamp stamp;

  bool operator==(const HeldSide&) const = default;
};

struct LocalState {
  ReplicaState replica;
  bool copy_on_write = false;
  FileStamps weights;                     // safetensors files and their index
  std::map<std::string, HeldSide> sides;  // the version's files beside them, as they were left
};

std::string serialise_local_state(const LocalState& state);
Result<LocalState> parse_local_state(std::string_view json);

// None when there is no such file.
Result<std::optional<LocalState>> read_local_state(const std::filesystem::path& file);
Status write_local_state(const std::filesystem::path& file, const LocalState& state);

}  // namespace deltawire
