// The publisher's store, with everything that makes a new version sent to replicas as well.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "ship/buckets.h"
#include "store/forwarding_store.h"

namespace deltawire {

// Objects of a version are gathered in the queue before they are put, so that both ways run side by
// side; the manifest is put first, and then said to be committed.
class ShippingStore final : public ForwardingStore {
 public:
  struct Watcher {
    std::function<bool()> anybody;  // whether there is somebody to send to
    std::function<void(uint64_t version)> first_part;
    std::function<void(const Identity& version)> committed;
  };
  // `head`: the newest version that is there.
  ShippingStore(std::shared_ptr<Store> inner, std::optional<uint64_t> head,
                std::shared_ptr<BucketQueue> queue, Watcher watcher);

  Status put(std::string_view name, const Body& body) override;
  Status put_if_absent(std::string_view name, const Body& body) override;
  // Whoever takes back what was sent gives up that publish, as one whose manifest is refused.
  Status remove(std::string_view name) override;

  // Nothing is sent any more; what is put goes to the store inside alone.
  void close();

 private:
  void send(std::string_view name, const Body& body);
  void commit(uint64_t version, const Body& manifest);

  const std::shared_ptr<BucketQueue> queue_;
  const Watcher watcher_;
  std::mutex mutex_;
  bool closed_ = false;
  std::optional<uint64_t> head_;
  std::optional<uint64_t> begun_;            // the version whose parts came last, if not given up
  uint64_t num_attempts_ = 0;                // so far
  std::set<std::string, std::less<>> sent_;  // of it
};

}  // namespace deltawire
