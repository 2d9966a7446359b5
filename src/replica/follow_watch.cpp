#include "replica/follow_watch.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "chain/names.h"

namespace deltawire {
namespace {

constexpr double kMaxBackoff = 60;
constexpr int kAskMilliseconds = 100;

double random_factor(double low, double high) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return std::uniform_real_distribution<double>(low, high)(random);
}

}  // namespace

FollowWatch::FollowWatch(Store& store) : pushed_(push_source_of(store)) {
  if (pushed_ != nullptr) news_ = pushed_->wait_for_news(0, 0);
  const std::string root = store.local_folder();
  if (root.empty()) return;
  folder_ = root + "/" + std::string(kManifestPrefix);
  inotify_ = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  watch();
}

FollowWatch::~FollowWatch() {
  if (inotify_ >= 0) ::close(inotify_);
}

// The folder may not be there yet: tried again at every wait.
void FollowWatch::watch() {
  if (inotify_ < 0 || watching_) return;
  watching_ = ::inotify_add_watch(inotify_, folder_.c_str(), IN_CREATE | IN_MOVED_TO) >= 0;
}

// Takes all events; true when there were any.
bool FollowWatch::drain() {
  alignas(inotify_event) char buffer[4096];
  bool any = false;
  while (true) {
    const ssize_t size = ::read(inotify_, buffer, sizeof buffer);
    if (size <= 0) return any;
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      if ((event->mask & IN_IGNORED) != 0) watching_ = false;  // the folder is gone
      any |= (event->mask & (IN_CREATE | IN_MOVED_TO | IN_Q_OVERFLOW)) != 0;
      at += ssize_t(sizeof(inotify_event) + event->len);
    }
  }
}

bool FollowWatch::wait_for_news(double seconds) {
  const uint64_t before = news_;
  news_ = pushed_->wait_for_news(before, seconds);
  return news_ > before;
}

void FollowWatch::wait(double seconds, const std::function<bool()>& stop,
                       const std::function<void()>& meanwhile) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  watch();
  while (!stop()) {
    if (inotify_ >= 0 && drain()) return;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return;
    const int64_t pause = std::min<int64_t>(left + 1, kAskMilliseconds);
    if (pushed_ != nullptr) {
      if (meanwhile) meanwhile();
      if (wait_for_news(double(pause) / 1000)) return;
      continue;
    }
    pollfd waited{inotify_, POLLIN, 0};  // a negative descriptor is passed over
    ::poll(&waited, 1, int(pause));
  }
}

double follow_backoff(unsigned failures, double interval) {
  const double doubled = std::max(0.1, interval) * std::exp2(std::min(failures, 20U));
  return std::min(kMaxBackoff, doubled) * random_factor(0.5, 1);
}

double follow_jitter(double interval) { return interval * random_factor(0.8, 1.2); }

}  // namespace deltawire
