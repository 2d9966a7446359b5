#include "store/directory_listing.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "store/names.h"
#include "store/temporary_file.h"

namespace deltawire {
namespace {

bool is_folder(const std::filesystem::path& folder, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN && entry.d_type != DT_LNK) return entry.d_type == DT_DIR;
  struct stat info;
  return ::stat((folder / entry.d_name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

class Walk {
 public:
  Walk(std::string_view prefix, std::string_view start_after,
       const std::function<Result<bool>(const std::string&)>& visit)
      : prefix_(prefix), start_after_(start_after), visit_(visit) {}

  // `name` is the folder's: empty, or with a slash at its end. False: the visitor has enough.
  Result<bool> folder(const std::filesystem::path& path, const std::string& name) {
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

 private:
  bool wanted(const std::string& name) const {
    if (!name.ends_with('/')) return name.starts_with(prefix_) && name > start_after_;
    const size_t common = std::min(name.size(), prefix_.size());
    if (name.compare(0, common, prefix_.substr(0, common)) != 0) return false;
    return name > start_after_ || start_after_.starts_with(name);
  }

  Result<std::vector<std::string>> entries(const std::filesystem::path& path,
                                           const std::string& name) const {
    std::vector<std::string> found;
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
    if (dir == nullptr && (errno == ENOENT || errno == ENOTDIR)) return found;
    if (dir == nullptr) return errno_status(path, "cannot list");
    errno = 0;
    while (const dirent* entry = ::readdir(dir.get())) {
      if (is_name_component(entry->d_name)) {
        std::string own = name + entry->d_name;
        if (is_folder(path, *entry)) own.push_back('/');
        if (wanted(own)) found.push_back(std::move(own));
      }
      errno = 0;
    }
    if (errno != 0) return errno_status(path, "cannot list");
    return found;
  }

  const std::string_view prefix_, start_after_;
  const std::function<Result<bool>(const std::string&)>& visit_;
};

}  // namespace

Status visit_objects(const std::filesystem::path& root, std::string_view prefix,
                     std::string_view start_after,
                     const std::function<Result<bool>(const std::string& name)>& visit) {
  // Begins at the deepest folder that the prefix names.
  const size_t slash = prefix.rfind('/');
  const std::string folder(prefix.substr(0, slash == std::string_view::npos ? 0 : slash + 1));
  return Walk(prefix, start_after, visit).folder(root / folder, folder).status();
}

}  // namespace deltawire
