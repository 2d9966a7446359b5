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

bool looks_like_store(const std::filesystem::path& path) {
  const std::string& text = path.native();
  // One slash: Python's Path makes that of two.
  const size_t scheme = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789");
  if (scheme != 0 && scheme != text.npos && text.compare(scheme, 2, ":/") == 0) return true;
  std::error_code error;
  return std::filesystem::exists(path / "run.json", error) &&
         std::filesystem::is_directory(path / "manifests", error);
}

}  // namespace deltawire
