#include "replica/follow_watch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

#include "chain/names.h"

namespace deltawire {
namespace {

constexpr double kMaxBackoff = 60;
constexpr double kAskSeconds = 0.1;

double random_factor(double low, double high) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return std::uniform_real_distribution<double>(low, high)(random);
}

std::string manifests_of(const Store& store) {
  const std::string root = store.local_folder();
  return root.empty() ? root : root + "/" + std::string(kManifestPrefix);
}

}  // namespace

FollowWatch::FollowWatch(Store& store)
    : pushed_(push_source_of(store)), folder_(manifests_of(store)) {
  if (pushed_ != nullptr) news_ = pushed_->wait_for_news(0, 0);
  if (!folder_.empty()) events_.watch(folder_);
}

bool FollowWatch::wait(double seconds, const std::function<bool()>& stop,
                       const std::function<void()>& meanwhile) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  // The folder may have been created, or replaced, since the last call.
  if (!folder_.empty()) events_.watch(folder_);
  while (true) {
    if (events_.wait(0)) return true;
    if (stop()) return false;
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    if (left <= 0) return false;
    const double pause = std::min(left, kAskSeconds);
    if (pushed_ != nullptr) {
      if (meanwhile) meanwhile();
      const uint64_t before = std::exchange(news_, pushed_->wait_for_news(news_, pause));
      if (news_ > before) return true;
    } else if (events_.wait(pause)) {
      return true;
    }
  }
}

double follow_backoff(unsigned failures, double interval) {
  const double doubled = std::max(0.1, interval) * std::exp2(std::min(failures, 20U));
  return std::min(kMaxBackoff, doubled) * random_factor(0.5, 1);
}

double follow_jitter(double interval) { return interval * random_factor(0.8, 1.2); }

}  // namespace deltawire
