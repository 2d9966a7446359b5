#include "base/process.h"

#include <unistd.h>

#include "deltawire/version.h"

namespace deltawire {

std::string host_name() {
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  return host;
}

std::string process_name() { return host_name() + ":" + std::to_string(::getpid()); }

std::string_view version() noexcept { return DELTAWIRE_VERSION; }

}  // namespace deltawire
