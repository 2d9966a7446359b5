// Folders that appear whole or not at all.
#pragma once

#include <filesystem>

#include "deltawire/status.h"

namespace deltawire {

// A new folder beside `out`, which must be free: see prepare_output().
Result<std::filesystem::path> create_temporary_folder(const std::filesystem::path& out);
// Makes `temporary` appear as `out`; an empty folder there is replaced.
Status publish_temporary_folder(const std::filesystem::path& temporary,
                                const std::filesystem::path& out);
void remove_temporary_folder(const std::filesystem::path& temporary) noexcept;

}  // namespace deltawire
