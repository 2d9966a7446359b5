// Waits for new versions of a chain.
#pragma once

#include <functional>
#include <string>

#include "base/folder_events.h"
#include "deltawire/store.h"
#include "store/push_source.h"

namespace deltawire {

// In a store that is a local folder a new manifest ends the wait at once, as does one that is
// pushed to the store (PushSource); elsewhere, and on network filesystems, only time does.
class FollowWatch {
 public:
  explicit FollowWatch(Store& store);  // outlives it

  // Until something was put into manifests/, wake() is called, `seconds` are over or `stop` says so
  // (asked several times a second). What came since the last call counts too. True: there may be
  // news. `meanwhile` is called as long as it waits, soon after anything was sent ahead:
  // Replica::prepare_ahead(). One thread.
  bool wait(double seconds, const std::function<bool()>& stop,
            const std::function<void()>& meanwhile = {});
  void wake() { events_.wake(); }  // from any thread

 private:
  PushSource* const pushed_;  // null: the store is polled
  uint64_t news_ = 0;         // notifications so far
  const std::string folder_;  // of manifests; empty: not on this machine
  FolderEvents events_;
};

// Exponential back-off with jitter: seconds to wait before attempt number `failures` + 1.
double follow_backoff(unsigned failures, double interval);
// `interval`, give or take a fifth, so that a fleet does not ask in step.
double follow_jitter(double interval);

}  // namespace deltawire
