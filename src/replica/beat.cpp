#include "replica/beat.h"

#include <unistd.h>

#include <chrono>

#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "chain/chain.h"
#include "chain/names.h"

namespace deltawire {
namespace {

constexpr auto kPeriod = std::chrono::seconds(60);
constexpr size_t kIdDigits = 16, kShownDigits = 8;
constexpr uint64_t kMaxIdBytes = 1 << 10;

}  // namespace

Result<std::string> replica_id(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "id";
  const Result<std::string> text = read_text_file(file, kMaxIdBytes);
  if (text.ok() && text->size() >= kIdDigits && is_hex(text->substr(0, kIdDigits))) {
    return text->substr(0, kIdDigits);
  }
  if (!text.ok() && text.status().code() == Code::kIo) return text.status();
  const std::string id = random_hex(kIdDigits);
  DW_RETURN_IF_ERROR(write_text_file(file, id + "\n"));
  return id;
}

std::string default_name(const std::filesystem::path& path, std::string_view id) {
  return host_name() + ":" + path.string() + ":" + std::string(id.substr(0, kShownDigits));
}

HeartbeatWriter::HeartbeatWriter(std::shared_ptr<Store> store, std::string name, std::string id)
    : store_(std::move(store)),
      name_(std::move(name)),
      id_(std::move(id)),
      session_(random_hex(kIdDigits)),
      host_(host_name()),
      object_(heartbeat_object(name_)),
      object_beside_(heartbeat_object(name_ + "#" + session_)) {}

Status HeartbeatWriter::write(Heartbeat beat, int64_t now) {
  DW_RETURN_IF_ERROR(check_place_of_heartbeats(*store_));
  beat.name = name_;
  beat.id = id_;
  beat.session = session_;
  beat.host = host_;
  beat.pid = uint64_t(::getpid());
  beat.seen = now;
  beat.interval_seconds = uint64_t(std::chrono::seconds(kPeriod).count());
  if (beat.lease) beat.lease->expires = now + kLeaseSeconds;
  DW_ASSIGN_OR_RETURN(const bool ours, is_ours(now));
  DW_RETURN_IF_ERROR(write_heartbeat(*store_, ours ? object_ : object_beside_, beat));
  spoken_ = spoken_ || ours;
  if (ours && beside_) {
    beside_ = false;
    return store_->remove(object_beside_);
  }
  return {};
}

// Another process may write between this read and the next write. Both then notice at the next
// heartbeat.
Result<bool> HeartbeatWriter::is_ours(int64_t now) {
  const Result<Heartbeat> there = read_heartbeat(*store_, name_);
  if (!there.ok()) {
    if (is_damage(there.status())) return true;  // gone or unreadable
    return there.status();
  }
  if (there->session == session_) return true;
  const std::string other = there->session + " " + std::to_string(there->seen);
  if (beside_) {  // measured by our own clock: the other clock may be wrong
    if (other == other_ && now - other_since_ > kSilentSeconds) return true;
  } else if (!spoken_) {  // written by an earlier process of ours, or by one that is gone
    if (there->id == id_ || now - there->seen > kSilentSeconds) return true;
  }
  if (other != other_) {
    other_ = other;
    other_since_ = now;
  }
  if (!beside_) {
    log_event(LogLevel::kWarning, "replica.name_taken",
              {{"name", name_}, {"host", there->host}, {"pid", there->pid}});
  }
  beside_ = true;
  return false;
}

ReplicaBeat::ReplicaBeat(std::shared_ptr<Store> store, std::string name, std::string id)
    : writer_(std::move(store), std::move(name), std::move(id)) {
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

void ReplicaBeat::holds(const std::optional<Identity>& held,
                        const std::optional<Identity>& serving) {
  const std::lock_guard lock(mutex_);
  // A poll that found nothing new is not reported: replicas poll the store all the time.
  const bool is_news = !told_ || beat_.lease || !beat_.error.empty();
  if (!is_news && beat_.held == held && beat_.serving == serving) return;
  told_ = true;
  beat_.held = held;
  beat_.serving = serving;
  beat_.error.clear();
  beat_.lease.reset();
  due_ = true;
  changed_.notify_all();
}

void ReplicaBeat::paused(uint64_t microseconds) {
  const std::lock_guard lock(mutex_);
  beat_.pause_microseconds = microseconds;
}

void ReplicaBeat::failed(const Status& status) {
  const std::lock_guard lock(mutex_);
  beat_.error = status.to_string();
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
    due_ = false;
    spoken = true;
    const Heartbeat beat = beat_;
    lock.unlock();
    const Status status = writer_.write(beat, unix_seconds());
    if (!status.ok()) log_event(LogLevel::kDebug, "replica.heartbeat_failed", {{"error", status}});
    lock.lock();
  }
}

}  // namespace deltawire
