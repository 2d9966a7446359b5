// Tells the store where this replica is, from a thread of its own: nothing waits for it, and a
// store that cannot be written is no error.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "chain/heartbeat.h"
#include "deltawire/store.h"

namespace deltawire {

// Repeats the last word once a minute, with leases renewed, so that a silent replica is a dead one.
// Destroyed, it says a last word that was not yet said, and stops.
class ReplicaBeat {
 public:
  ReplicaBeat(std::shared_ptr<Store> store, std::string name);
  ~ReplicaBeat();
  ReplicaBeat(const ReplicaBeat&) = delete;
  ReplicaBeat& operator=(const ReplicaBeat&) = delete;

  // `from` and `to`: what is being fetched.
  void fetching(std::optional<uint64_t> from, uint64_t to);
  void holds(std::optional<uint64_t> version, std::optional<uint64_t> serving);

 private:
  void run();
  void say(std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<Store> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Heartbeat beat_;
  bool due_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace deltawire
