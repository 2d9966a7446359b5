// What a publisher does for its chain between versions: merged deltas for replicas that missed
// some, and retention.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "deltawire/store.h"
#include "ship/ship.h"

namespace deltawire {

// On a thread of its own: no publish waits for it. What fails is logged, and tried after the next
// version.
class Upkeep {
 public:
  Upkeep(std::shared_ptr<Store> store, const ShipOptions& options);
  ~Upkeep();  // ends what is under way

  // A version was committed; `held`: those that replicas hold.
  void committed(uint64_t version, std::set<uint64_t> held);
  void wait_idle();  // for tests

 private:
  struct Work {
    uint64_t version = 0;
    std::set<uint64_t> held;
  };
  void run();
  void merge(const Work& work);
  void collect();
  bool stopping() const;

  const std::shared_ptr<Store> store_;
  const ShipOptions& options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Work> due_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace deltawire
