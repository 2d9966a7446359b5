// What a member asks, answered one after the other beside what else it says: a slow store keeps
// nobody from saying that it is ready.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "ship/messages.h"

namespace deltawire {

class Asks {
 public:
  explicit Asks(std::function<void(const Message&)> answer);
  ~Asks() { finish(); }

  void add(Message ask);  // waits while several do
  void finish();          // when all are answered; nothing may be added then

 private:
  void run();

  const std::function<void(const Message&)> answer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> waiting_;
  bool finished_ = false;
  std::vector<std::thread> thread_;  // none, where the system gives none: add() answers
};

}  // namespace deltawire
