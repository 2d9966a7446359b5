// Waits for new versions of a chain.
#pragma once

#include <functional>
#include <string>

#include "deltawire/store.h"

namespace deltawire {

// In a store that is a local folder a new manifest ends the wait at once (inotify); elsewhere, and
// on network filesystems, which tell nobody, only time does. One thread.
class FollowWatch {
 public:
  explicit FollowWatch(const Store& store);
  ~FollowWatch();
  FollowWatch(const FollowWatch&) = delete;
  FollowWatch& operator=(const FollowWatch&) = delete;

  // Until something was put into manifests/, `seconds` are over or `stop` says so (asked several
  // times a second). What came since the last call counts too.
  void wait(double seconds, const std::function<bool()>& stop);

 private:
  void watch();
  bool drain();

  std::string folder_;
  int inotify_ = -1;
  bool watching_ = false;
};

// Exponential back-off with jitter: seconds to wait before attempt number `failures` + 1.
double follow_backoff(unsigned failures, double interval);
// `interval`, give or take a fifth, so that a fleet does not ask in step.
double follow_jitter(double interval);

}  // namespace deltawire
