#include "base/work_folder.h"

#include <stdlib.h>

#include <utility>

#include "base/folder.h"

namespace deltawire {
namespace fs = std::filesystem;

Result<WorkFolder> WorkFolder::make(const fs::path& inside) {
  std::error_code error;
  const fs::path parent = inside.empty() ? fs::temp_directory_path(error) : inside;
  if (error) return io_error("no folder for temporary files: " + error.message());
  DW_RETURN_IF_ERROR(make_folder(parent));
  std::string pattern = (parent / "deltawire-work-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    return io_error(parent.string() + ": cannot make a folder there");
  }
  return WorkFolder(pattern);
}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

WorkFolder::~WorkFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace deltawire
