// Objects of a folder, in byte order of their names.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

// Visits objects in byte order of their names until the visitor returns false. Reads only folders
// that can hold matching names, and skips names that no object can have (temporary files,
// lost+found). Memory: the entries of the folders on one path.
class DirectoryWalk {
 public:
  DirectoryWalk(std::string_view prefix, std::string_view start_after,
                std::function<Result<bool>(const std::string&)> visit)
      : prefix_(prefix), start_after_(start_after), visit_(std::move(visit)) {}

  // `name` is the folder's object prefix: empty, or with a trailing slash. False: the visitor
  // returned false.
  Result<bool> folder(const std::filesystem::path& path, const std::string& name);

 private:
  bool wanted(const std::string& name) const;
  Result<std::vector<std::string>> entries(const std::filesystem::path& path,
                                           const std::string& name) const;

  const std::string_view prefix_, start_after_;
  const std::function<Result<bool>(const std::string&)> visit_;
};

}  // namespace deltawire
