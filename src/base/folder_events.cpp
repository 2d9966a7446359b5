#include "base/folder_events.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>

namespace deltawire {
namespace {

constexpr double kBlindSeconds = 0.05;

}  // namespace

FolderEvents::FolderEvents()
    : inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

bool FolderEvents::watch(const std::filesystem::path& folder, bool writes) {
  const uint32_t mask = IN_CREATE | IN_MOVED_TO | (writes ? IN_MODIFY : 0U);
  if (inotify_.get() >= 0 && ::inotify_add_watch(inotify_.get(), folder.c_str(), mask) >= 0)
    return true;
  is_blind_ |= inotify_.get() < 0 || errno == ENOSPC;
  return false;
}

// Takes all events; true when there were any.
bool FolderEvents::drain() {
  bool any = false;
  alignas(inotify_event) char events[4096];
  while (inotify_.get() >= 0 && ::read(inotify_.get(), events, sizeof events) > 0) any = true;
  uint64_t count = 0;
  if (wake_.get() >= 0 && ::read(wake_.get(), &count, sizeof count) > 0) any = true;
  return any;
}

bool FolderEvents::wait(double seconds) {
  if (drain()) return true;
  if (is_blind_) seconds = std::min(seconds, kBlindSeconds);
  pollfd waited[] = {{inotify_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};  // -1 is passed over
  ::poll(waited, 2, int(std::ceil(std::clamp(seconds, 0.0, 1e6) * 1000)));
  return drain() || (is_blind_ && seconds > 0);
}

void FolderEvents::wake() {
  const uint64_t one = 1;
  if (wake_.get() >= 0) (void)!::write(wake_.get(), &one, sizeof one);
}

}  // namespace deltawire
