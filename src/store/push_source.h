// Notifications and objects that a transport pushes to a store, so that readers need not poll.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deltawire/store.h"
#include "store/forwarding_store.h"

namespace deltawire {

// An object that was put before its version was committed; that commit may never happen.
struct SentObject {
  uint64_t number = 0;  // grows with each
  std::string name;
  std::shared_ptr<const Body> body;
};

// A store may be one as well. Thread-safe.
class PushSource {
 public:
  virtual ~PushSource() = default;
  // Waits until there are more than `seen` notifications, the time is over, or an object was sent
  // ahead. Returns the number of notifications.
  virtual uint64_t wait_for_news(uint64_t seen, double seconds) = 0;
  // Objects with numbers above `seen`, in order; the call may fetch them. The list may be
  // incomplete: readers verify everything and read missing objects from the store.
  virtual std::vector<SentObject> sent_ahead(uint64_t) { return {}; }
};

// Looks through decorators. Null: nothing is pushed to this store.
inline PushSource* push_source_of(Store& store) {
  if (auto* const source = dynamic_cast<PushSource*>(&store)) return source;
  auto* const decorator = dynamic_cast<ForwardingStore*>(&store);
  return decorator == nullptr ? nullptr : push_source_of(decorator->inner());
}

}  // namespace deltawire
