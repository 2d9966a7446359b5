// Runs network jobs in parallel with computation.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "deltawire/progress.h"
#include "deltawire/status.h"

namespace deltawire {

// Seconds since a pipeline began: phases of one pipeline share one clock.
class PublishClock {
 public:
  PublishClock();
  double now() const;

 private:
  double start_;
};

// Runs jobs on its own threads and starts them in order. Queued and running jobs hold memory, so
// push() blocks while that exceeds a limit. The first failure drops the jobs that have not begun;
// push() and finish() return it. push() and finish() are for one thread.
class UploadQueue {
 public:
  using Job = std::function<Status()>;
  // False cancels. Called several times a second while push() or finish() wait.
  using KeepGoing = std::function<bool()>;

  // `doing`: what its jobs do, for messages.
  UploadQueue(const char* doing, unsigned threads, uint64_t max_bytes, PublishClock clock,
              KeepGoing keep_going);
  ~UploadQueue();  // drops jobs that have not begun and waits for running ones
  UploadQueue(const UploadQueue&) = delete;
  UploadQueue& operator=(const UploadQueue&) = delete;

  // `bytes` count until the job has ended. A job larger than the limit waits until no other is
  // queued.
  Status push(uint64_t bytes, Job job);
  Status finish();

  // True once running jobs are useless: a job failed, the queue was cancelled or is being
  // destroyed. Long jobs check it.
  const std::atomic<bool>& stopping() const noexcept { return stopping_; }

  // From the begin of the first job to the end of the last one so far; none: nothing was pushed.
  std::optional<Phase> phase(std::string name) const;

 private:
  struct Waiting {
    uint64_t bytes;
    Job job;
  };
  void work();
  void fail(Status status);  // with the mutex held
  // Waits until `ready` holds; false after a failure or a cancellation.
  bool wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready);

  const char* const doing_;
  const uint64_t max_bytes_;
  const PublishClock clock_;
  const KeepGoing keep_going_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  uint64_t bytes_ = 0;
  size_t running_ = 0;
  bool closed_ = false;
  Status failure_;
  std::atomic<bool> stopping_{false};
  std::optional<double> begin_;
  double end_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace deltawire
