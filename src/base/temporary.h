// Names of what is not whole yet, and what becomes of it when its writer was killed.
#pragma once

#include <filesystem>

namespace deltawire {

// Beside `target`, new at every call: "model.safetensors.3f2a9c41-1234-0.tmp", where the process
// runs, its id and a counter.
std::filesystem::path temporary_path(const std::filesystem::path& target);

// Removes the temporaries of `target` whose process is gone. Ids mean something only on the same
// machine since its last boot and in the same container, so those of elsewhere stay, as does what
// cannot be removed. Reads the folder that `target` is in.
void remove_stale_temporaries(const std::filesystem::path& target);

// "." for a name without a folder.
std::filesystem::path folder_of(const std::filesystem::path& path);

}  // namespace deltawire
