#include "ship/asks.h"

#include "base/thread_pool.h"

namespace deltawire {
namespace {

constexpr size_t kMostWaiting = 16;

}  // namespace

Asks::Asks(std::function<void(const Message&)> answer) : answer_(std::move(answer)) {
  start_threads(
      1, [this](size_t) { run(); }, &thread_);
}

void Asks::add(Message ask) {
  if (thread_.empty()) return answer_(ask);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < kMostWaiting; });
  waiting_.push_back(std::move(ask));
  changed_.notify_all();
}

void Asks::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : thread_) thread.join();
  thread_.clear();
}

void Asks::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return finished_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Message ask = std::move(waiting_.front());
    waiting_.pop_front();
    changed_.notify_all();
    lock.unlock();
    answer_(ask);
    lock.lock();
  }
}

}  // namespace deltawire
