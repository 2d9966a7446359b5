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

// Space on disk for work that needs it.

// A folder of one's own that goes away.
class WorkFolder {
 public:
  // Empty: in the system's folder for temporary files.
  static Result<WorkFolder> make(const std::filesystem::path& inside);
  ~WorkFolder();
  WorkFolder(WorkFolder&& other) noexcept;
  WorkFolder& operator=(WorkFolder&&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  explicit WorkFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// Names of what is not whole yet, and what becomes of it when its writer was killed.

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
