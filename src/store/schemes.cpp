#include "store/schemes.h"

#include <map>
#include <mutex>

namespace deltawire {
namespace {

struct Schemes {
  std::mutex mutex;
  std::map<std::string, OpenScheme> by_name;
};

// To the very end of the process: threads may outlive main().
Schemes& schemes() {
  static auto& all = *new Schemes;
  return all;
}

}  // namespace

void register_store_scheme(const std::string& scheme, OpenScheme open) {
  const std::lock_guard lock(schemes().mutex);
  schemes().by_name.insert_or_assign(scheme, std::move(open));
}

OpenScheme find_store_scheme(const std::string& url) {
  const size_t end = url.find("://");
  if (end == url.npos) return nullptr;
  const std::lock_guard lock(schemes().mutex);
  const auto found = schemes().by_name.find(url.substr(0, end + 3));
  return found == schemes().by_name.end() ? nullptr : found->second;
}

}  // namespace deltawire
