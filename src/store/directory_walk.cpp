#include "store/directory_walk.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/file.h"
#include "deltawire/store.h"

namespace deltawire {
namespace {

bool is_folder(const std::filesystem::path& folder, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN && entry.d_type != DT_LNK) return entry.d_type == DT_DIR;
  struct stat info;
  return ::stat((folder / entry.d_name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

Result<bool> DirectoryWalk::folder(const std::filesystem::path& path, const std::string& name) {
  DW_ASSIGN_OR_RETURN(std::vector<std::string> names, entries(path, name));
  // A folder's name ends in a slash here, which puts all that it holds in its place among the
  // others. A heap: most callers want few of many.
  std::make_heap(names.begin(), names.end(), std::greater<>());
  for (auto end = names.end(); end != names.begin(); --end) {
    std::pop_heap(names.begin(), end, std::greater<>());
    const std::string& next = *(end - 1);
    DW_ASSIGN_OR_RETURN(const bool more, next.ends_with('/')
                                             ? folder(path / next.substr(name.size()), next)
                                             : visit_(next));
    if (!more) return false;
  }
  return true;
}

bool DirectoryWalk::wanted(const std::string& name) const {
  if (!name.ends_with('/')) return name.starts_with(prefix_) && name > start_after_;
  const size_t common = std::min(name.size(), prefix_.size());
  if (name.compare(0, common, prefix_.substr(0, common)) != 0) return false;
  return name > start_after_ || start_after_.starts_with(name);
}

Result<std::vector<std::string>> DirectoryWalk::entries(const std::filesystem::path& path,
                                                        const std::string& name) const {
  std::vector<std::string> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (dir == nullptr && (errno == ENOENT || errno == ENOTDIR)) return found;
  if (dir == nullptr) return errno_status(path, "cannot list");
  errno = 0;
  while (const dirent* entry = ::readdir(dir.get())) {
    if (check_object_name(entry->d_name).ok()) {
      std::string own = name + entry->d_name;
      if (is_folder(path, *entry)) own.push_back('/');
      if (wanted(own)) found.push_back(std::move(own));
    }
    errno = 0;
  }
  if (errno != 0) return errno_status(path, "cannot list");
  return found;
}

}  // namespace deltawire
