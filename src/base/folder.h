// Folders and whole trees, with errors that name them.
#pragma once

#include <filesystem>

#include "deltawire/status.h"

namespace deltawire {

// Makes the folder and those above it, or says why it cannot; Ok when it is there.
Status make_folder(const std::filesystem::path& path);
// Removes a file or folder with all that is in it; Ok when it is not there.
Status remove_tree(const std::filesystem::path& path);
// Replaces what exists at `to`, if the system allows it. Both must be on the same disk.
Status rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// For messages: whether the path, expected to be a folder or file of the caller, is a store's URL
// or folder.
bool looks_like_store(const std::filesystem::path& path);

// Space on disk for work that needs it.

// A temporary folder; removed by the destructor.
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

// Names of temporary files, and the removal of those whose writer was killed.

// Beside `target`, new at every call: "model.safetensors.3f2a9c41-1234-0.tmp", where the process
// runs, its id and a counter.
std::filesystem::path temporary_path(const std::filesystem::path& target);

// Removes the temporaries of `target` whose process has ended. Process ids are comparable only
// within one boot and one container, so temporaries from elsewhere stay, as do those that cannot be
// removed. Reads the folder of `target`.
void remove_stale_temporaries(const std::filesystem::path& target);

// "." for a name without a folder.
std::filesystem::path folder_of(const std::filesystem::path& path);

}  // namespace deltawire
