#include "base/sync_point.h"

#if DELTAWIRE_FAULTS

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace deltawire {
namespace {

// Open for the life of the process: it ends by SIGKILL.
int open_log() {
  const char* path = std::getenv("DELTAWIRE_CRASH_LOG");
  return path == nullptr ? -1 : ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

unsigned long crash_at() {
  const char* text = std::getenv("DELTAWIRE_CRASH_AT");
  return text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
}

}  // namespace

void pass_sync_point(const char* name) noexcept {
  static const int log = open_log();
  static const unsigned long last = crash_at();
  static std::atomic<unsigned long> passed{0};
  const unsigned long number = ++passed;
  if (log >= 0) {
    char line[160];
    const int size = std::snprintf(line, sizeof line, "%lu %s\n", number, name);
    const ssize_t written = ::write(log, line, size_t(size));
    static_cast<void>(written);  // a harness sees that a line is missing
  }
  if (number == last) ::kill(::getpid(), SIGKILL);
}

}  // namespace deltawire

#endif
