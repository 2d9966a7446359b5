#include "base/folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace deltawire {
namespace fs = std::filesystem;

Status make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? io_error(path.string() + ": cannot make folder: " + error.message()) : Status();
}

Status remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error || error == std::errc::no_such_file_or_directory) return {};
  return io_error(path.string() + ": cannot remove: " + error.message());
}

Status rename_path(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return {};
  return io_error(from.string() + ": cannot rename to " + to.string() + ": " +
                  std::strerror(errno));
}

}  // namespace deltawire
