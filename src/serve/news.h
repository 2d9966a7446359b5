// Notifies many waiting readers of new versions of a chain.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "deltawire/store.h"
#include "replica/follow_watch.h"

namespace deltawire {

// One thread watches the store. Thread-safe.
class News {
 public:
  // `poll_seconds`: polling interval for a store without notifications.
  News(std::shared_ptr<Store> store, double poll_seconds);
  ~News();

  // A part of a version that is not committed yet. Numbers grow, over restarts too.
  struct Part {
    uint64_t number = 0;
    std::string name;
    uint64_t size_bytes = 0;
  };
  struct Answer {
    uint64_t news = 0;        // grows with each version, over restarts too
    std::vector<Part> parts;  // after the one that was seen
  };
  // Waits until there is something newer than `seen`, the time is over, or end() is called. Parts
  // are returned only if `seen_part` is given.
  Answer wait(uint64_t seen, std::optional<uint64_t> seen_part, double seconds);
  void end();

 private:
  void run();
  bool has_changed();
  void look_ahead();

  const std::shared_ptr<Store> store_;
  const double poll_seconds_;
  FollowWatch watch_;
  PushSource* const pushed_;  // null: nothing is sent ahead
  std::string newest_;        // manifest
  uint64_t seen_ahead_ = 0, last_part_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t news_;
  std::vector<Part> parts_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace deltawire
