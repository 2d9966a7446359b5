// Room on disk for work that needs it.
#pragma once

#include <filesystem>

#include "deltawire/status.h"

namespace deltawire {

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

}  // namespace deltawire
