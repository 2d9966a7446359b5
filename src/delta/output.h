// Where a result goes: looked at before any work is done.
#pragma once

#include <filesystem>
#include <vector>

#include "deltawire/checkpoint.h"
#include "deltawire/status.h"

namespace deltawire {

enum class OutputForm { kFile, kFolder };

// The path to write to: `out` with symbolic links followed. Clears away what killed runs left
// beside it. InvalidArgument when the name is empty, or when what is there cannot be replaced: a
// file is replaced by a file, an empty folder by a folder, and nothing else. NotFound or Io when
// the folder that it would be in is missing or closed.
Result<std::filesystem::path> prepare_output(const std::filesystem::path& out, OutputForm form);

// InvalidArgument when `out` is `input`, one of the files read for it, or inside its folder.
Status refuse_input(const std::filesystem::path& out, const std::filesystem::path& input,
                    const std::vector<std::filesystem::path>& files);

// Opening a checkpoint that a person named.

// Checkpoint::open(), which says what it is when it is something else: a delta, an index.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);

// Folders that appear whole or not at all.

// A new folder beside `out`, which must be free: see prepare_output().
Result<std::filesystem::path> create_temporary_folder(const std::filesystem::path& out);
// Makes `temporary` appear as `out`; an empty folder there is replaced.
Status publish_temporary_folder(const std::filesystem::path& temporary,
                                const std::filesystem::path& out);
void remove_temporary_folder(const std::filesystem::path& temporary) noexcept;

}  // namespace deltawire
