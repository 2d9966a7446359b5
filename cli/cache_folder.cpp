#include "cli/cache_folder.h"

#include <cstdlib>

namespace deltawire::cli {

Result<std::filesystem::path> cache_folder(const std::string& name) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::filesystem::path(cache) / "deltawire" / name;
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache/deltawire" / name;
  }
  return invalid_argument("neither XDG_CACHE_HOME nor HOME is set; say --work DIR");
}

}  // namespace deltawire::cli
