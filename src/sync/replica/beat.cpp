#include "sync/replica/beat.h"

#include <unistd.h>

#include <chrono>

#include "base/log.h"

namespace deltawire {
namespace {

constexpr auto kPeriod = std::chrono::seconds(60);

std::string host_name() {
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  return host;
}

}  // namespace

ReplicaBeat::ReplicaBeat(std::shared_ptr<Store> store, std::string name)
    : store_(std::move(store)) {
  beat_.name = std::move(name);
  beat_.host = host_name();
  beat_.pid = uint64_t(::getpid());
  thread_ = std::thread([this] { run(); });
}

ReplicaBeat::~ReplicaBeat() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void ReplicaBeat::fetching(std::optional<uint64_t> from, uint64_t to) {
  const std::lock_guard lock(mutex_);
  beat_.lease = Lease{from, to, 0};
  due_ = true;
  changed_.notify_all();
}

void ReplicaBeat::holds(std::optional<uint64_t> version, std::optional<uint64_t> serving) {
  const std::lock_guard lock(mutex_);
  beat_.version = version;
  beat_.serving = serving;
  beat_.lease.reset();
  due_ = true;
  changed_.notify_all();
}

void ReplicaBeat::run() {
  std::unique_lock lock(mutex_);
  bool spoken = false;
  while (!stop_ || due_) {
    if (!due_ && changed_.wait_for(lock, kPeriod) == std::cv_status::timeout) due_ = spoken;
    if (!due_) continue;
    say(lock);
    spoken = true;
  }
}

void ReplicaBeat::say(std::unique_lock<std::mutex>& lock) {
  due_ = false;
  Heartbeat beat = beat_;
  lock.unlock();
  beat.seen = unix_now();
  if (beat.lease) beat.lease->expires = beat.seen + kLeaseSeconds;
  const Status status = write_heartbeat(*store_, beat);
  if (!status.ok()) log_event(LogLevel::kDebug, "replica.heartbeat_failed", {{"error", status}});
  lock.lock();
}

}  // namespace deltawire
