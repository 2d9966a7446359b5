#include "replica/local_layout.h"

#include <algorithm>
#include <cstdio>
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

std::string version_folder(uint64_t version) {
  char name[24];
  std::snprintf(name, sizeof name, "v%010llu", static_cast<unsigned long long>(version));
  return name;
}

}  // namespace

fs::path LocalLayout::version(uint64_t version) const { return root / version_folder(version); }

fs::path LocalLayout::feed_version(uint64_t version) const {
  return feed() / version_folder(version);
}

std::vector<uint64_t> version_folders(const fs::path& folder) {
  std::vector<uint64_t> versions;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (const auto version = version_of_folder(it->path().filename().string())) {
      versions.push_back(*version);
    }
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

}  // namespace deltawire
