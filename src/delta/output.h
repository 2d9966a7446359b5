// Checks where a result will go, before any work is done.
#pragma once

#include <filesystem>
#include <vector>

#include "deltawire/checkpoint.h"
#include "deltawire/status.h"

namespace deltawire {

enum class OutputForm { kFile, kFolder };

// The path to write to: `out` with symbolic links followed. Removes what killed processes left
// beside it. InvalidArgument if the name is empty, or if something other than a file (for a file)
// or an empty folder (for a folder) is there. NotFound or Io if its folder is missing or not
// writable.
Result<std::filesystem::path> prepare_output(const std::filesystem::path& out, OutputForm form);

// InvalidArgument if `out` is `input`, one of its files, or inside its folder.
Status refuse_input(const std::filesystem::path& out, const std::filesystem::path& input,
                    const std::vector<std::filesystem::path>& files);

// Opening a checkpoint that a user named.

// Like Checkpoint::open(), but explains what else `path` is: a delta, an index.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);

// Folders that appear complete or not at all.

// Creates a folder beside `out`, which must be free; see prepare_output().
Result<std::filesystem::path> create_temporary_folder(const std::filesystem::path& out);
// Renames `temporary` to `out`, replacing an empty folder.
Status publish_temporary_folder(const std::filesystem::path& temporary,
                                const std::filesystem::path& out);
void remove_temporary_folder(const std::filesystem::path& temporary) noexcept;

}  // namespace deltawire
