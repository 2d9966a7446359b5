// Tells whether a file is as it was left, without reading it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

struct FileStamp {
  uint64_t size_bytes = 0, inode = 0;
  int64_t modified_ns = 0, changed_ns = 0;

  bool operator==(const FileStamp&) const = default;
};
using FileStamps = std::map<std::string, FileStamp>;  // by name in a folder

Result<FileStamp> stamp_of(const std::filesystem::path& file);
// Of an open file, which is given a time of change that no later write gives it again: kernels
// note the times of writes in steps of milliseconds.
Result<FileStamp> mark_file(int fd, const std::filesystem::path& file);

// Stamps of `names` in `folder`.
Result<FileStamps> stamp_files(const std::filesystem::path& folder,
                               const std::vector<std::string>& names);
// The first file that is not as it was left, or none: "model.safetensors was changed".
std::optional<std::string> find_edited(const std::filesystem::path& folder, const FileStamps& left);

}  // namespace deltawire
