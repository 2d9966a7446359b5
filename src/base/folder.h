// Folders and whole trees, with errors that name them.
#pragma once

#include <filesystem>

#include "deltawire/status.h"

namespace deltawire {

// Makes the folder and those above it, or says why it cannot; Ok when it is there.
Status make_folder(const std::filesystem::path& path);
// Removes a file or folder with all that is in it; Ok when it is not there.
Status remove_tree(const std::filesystem::path& path);
// In place of what is there, if that can be; on the same disk.
Status rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// For messages: whether a caller who was to give a folder or a file of his own has given a store,
// by a URL or by its folder.
bool looks_like_store(const std::filesystem::path& path);

}  // namespace deltawire
