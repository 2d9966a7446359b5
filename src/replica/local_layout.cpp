#include "replica/local_layout.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "format/checkpoint_files.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

std::optional<uint64_t> version_of_folder(std::string_view name) {
  uint64_t version = 0;
  if (!is_version_folder(name) || name[0] != 'v' || !parse_number(name.substr(1), &version)) {
    return {};
  }
  return version;
}

Status fs_error(const fs::path& path, std::string_view what, const std::error_code& error) {
  return io_error(path.string() + ": " + std::string(what) + ": " + error.message());
}

}  // namespace

fs::path LocalLayout::version(uint64_t version) const {
  char name[24];
  std::snprintf(name, sizeof name, "v%010llu", static_cast<unsigned long long>(version));
  return root / name;
}

std::vector<uint64_t> versions_side_by_side(const LocalLayout& layout) {
  std::vector<uint64_t> versions;
  std::error_code error;
  for (fs::directory_iterator it(layout.root, error), end; !error && it != end;
       it.increment(error)) {
    if (const auto version = version_of_folder(it->path().filename().string())) {
      versions.push_back(*version);
    }
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

Status make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return fs_error(path, "cannot make the folder", error);
  return {};
}

Status remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return fs_error(path, "cannot remove", error);
  }
  return {};
}

Status rename_path(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return {};
  return io_error(from.string() + ": cannot rename to " + to.string() + ": " +
                  std::strerror(errno));
}

}  // namespace deltawire
