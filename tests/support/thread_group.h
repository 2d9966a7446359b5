// An all-gather among threads as ranks of one process, in place of a process group.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "deltawire/publish_options.h"

namespace deltawire::testing {

class ThreadGroup {
 public:
  explicit ThreadGroup(unsigned world) : world_(world) {}

  Ranks ranks(unsigned rank) {
    return {rank, world_, [this, rank](std::string_view mine) { return gather(rank, mine); }};
  }
  // Marks a rank as ended: ranks that wait for it fail.
  void leave(unsigned rank) {
    const std::lock_guard lock(mutex_);
    left_.insert(rank);
    changed_.notify_all();
  }

 private:
  struct Round {
    std::vector<std::string> texts;
    unsigned given = 0;
  };

  Result<std::vector<std::string>> gather(unsigned rank, std::string_view mine) {
    std::unique_lock lock(mutex_);
    if (!open_) open_ = std::make_shared<Round>(Round{std::vector<std::string>(world_), 0});
    const std::shared_ptr<Round> round = open_;
    round->texts[rank] = mine;
    if (++round->given == world_) {
      open_.reset();
      changed_.notify_all();
    }
    // The timeout is for bugs only: it is never reached otherwise.
    const auto over = [&] { return round->given == world_ || !left_.empty(); };
    const bool ended = changed_.wait_for(lock, std::chrono::minutes(2), over);
    if (round->given == world_) return round->texts;
    return unavailable(ended ? "rank " + std::to_string(*left_.begin()) + " has ended"
                             : "timed out waiting for the other ranks");
  }

  const unsigned world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Round> open_;
  std::set<unsigned> left_;
};

}  // namespace deltawire::testing
