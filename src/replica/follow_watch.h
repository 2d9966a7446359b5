// Waits for new versions of a chain.
#pragma once

#include <functional>
#include <string>

#include "base/folder_events.h"
#include "deltawire/store.h"
#include "store/push_source.h"

namespace deltawire {

// A new manifest ends the wait at once if the store is a local folder or receives pushes
// (PushSource). With other stores and on network filesystems, the wait lasts its full time.
class FollowWatch {
 public:
  explicit FollowWatch(Store& store);  // `store` must outlive this

  // Waits until something is added to manifests/, wake() is called, `seconds` have passed or `stop`
  // returns true (polled several times a second). Events since the last call count too. Returns
  // true if there may be news. `meanwhile` is called repeatedly during the wait, soon after new
  // objects were sent ahead; see Replica::prepare_ahead(). One thread.
  bool wait(double seconds, const std::function<bool()>& stop,
            const std::function<void()>& meanwhile = {});
  void wake() { events_.wake(); }  // from any thread

 private:
  PushSource* const pushed_;  // null: the store is polled
  uint64_t news_ = 0;         // notifications received
  const std::string folder_;  // with the manifests; empty: the store is not on this machine
  FolderEvents events_;
};

// Exponential back-off with jitter: seconds to wait before attempt number `failures` + 1.
double follow_backoff(unsigned failures, double interval);
// `interval`, varied by up to a fifth, so that the polls of a fleet spread out.
double follow_jitter(double interval);

}  // namespace deltawire
