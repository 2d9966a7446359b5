#include "transfer/upload_queue.h"

#include <chrono>

#include "base/clock.h"
#include "base/guard.h"
#include "base/thread_pool.h"

namespace deltawire {
namespace {

constexpr std::chrono::milliseconds kAskEvery{50};

}  // namespace

PublishClock::PublishClock() : start_(steady_seconds()) {}
double PublishClock::now() const { return steady_seconds() - start_; }

UploadQueue::UploadQueue(const char* doing, unsigned threads, uint64_t max_bytes,
                         PublishClock clock, KeepGoing keep_going)
    : doing_(doing), max_bytes_(max_bytes), clock_(clock), keep_going_(std::move(keep_going)) {
  start_threads(
      threads, [this](size_t) { work(); }, &threads_);
}

UploadQueue::~UploadQueue() {
  stopping_ = true;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool UploadQueue::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) {
  while (failure_.ok() && !ready()) {
    changed_.wait_for(lock, kAskEvery);
    if (failure_.ok() && keep_going_ && !keep_going_()) fail(cancelled("stopped on request"));
  }
  return failure_.ok();
}

void UploadQueue::fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
  stopping_ = true;
}

Status UploadQueue::push(uint64_t bytes, Job job) {
  std::unique_lock lock(mutex_);
  if (threads_.empty()) {  // the system gives none: one after the other, here
    lock.unlock();
    Status status = guard_memory(doing_, [&]() -> Status { return job(); });
    lock.lock();
    if (!status.ok()) fail(std::move(status));
    return failure_;
  }
  if (!wait(lock, [&] { return bytes_ == 0 || bytes_ + bytes <= max_bytes_; })) return failure_;
  bytes_ += bytes;
  waiting_.push_back({bytes, std::move(job)});
  changed_.notify_all();
  return {};
}

Status UploadQueue::finish() {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return waiting_.empty() && running_ == 0; });
  return failure_;
}

std::optional<Phase> UploadQueue::phase(std::string name) const {
  const std::lock_guard lock(mutex_);
  if (!begin_) return {};
  return Phase{std::move(name), *begin_, end_};
}

void UploadQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !failure_.ok() || !waiting_.empty(); });
    if (closed_ || !failure_.ok()) return;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    ++running_;
    if (!begin_) begin_ = clock_.now();
    lock.unlock();
    Status status = guard_memory(doing_, [&]() -> Status { return next.job(); });
    next.job = nullptr;  // what it held goes before its bytes are counted as free
    lock.lock();
    end_ = clock_.now();
    --running_;
    bytes_ -= next.bytes;
    if (!status.ok()) fail(std::move(status));
    changed_.notify_all();
  }
}

}  // namespace deltawire
