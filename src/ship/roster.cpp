#include "ship/roster.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"

namespace deltawire {
namespace {

constexpr double kRememberSeconds = 3600;  // those that left
constexpr size_t kMostRemembered = 256;
constexpr unsigned kMostStrikes = 2;
constexpr size_t kMostNotes = 100;

double roster_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::chrono::duration<double> roster_seconds(double seconds) {
  return std::chrono::duration<double>(seconds);
}

}  // namespace

Roster::Replica* Roster::find(uint64_t id) {
  const auto found = replicas_.find(id);
  return found == replicas_.end() ? nullptr : &found->second;
}

void Roster::joined(const MemberInfo& info) {
  const std::lock_guard lock(mutex_);
  Replica replica;
  replica.info = info;
  replica.name = info.name;
  replicas_.emplace(info.id, std::move(replica));
  changed_.notify_all();
}

void Roster::left(uint64_t id, std::string reason) {
  const std::lock_guard lock(mutex_);
  Replica* const replica = find(id);
  if (replica == nullptr || !replica->present) return;
  replica->present = false;
  replica->left_at = roster_now();
  if (replica->error.empty()) replica->error = std::move(reason);
  if (replica->follows) {
    log_event(LogLevel::kWarning, "ship.left",
              {{"name", replica->name}, {"from", replica->info.from}, {"error", replica->error}});
  } else {
    replicas_.erase(id);
  }
  forget_old();
  changed_.notify_all();
}

void Roster::forget_old() {
  const double now = roster_now();
  size_t gone = 0;
  for (const auto& [id, replica] : replicas_) gone += replica.present ? 0 : 1;
  for (auto at = replicas_.begin(); at != replicas_.end();) {
    const bool forget = !at->second.present &&
                        (gone > kMostRemembered || now - at->second.left_at > kRememberSeconds);
    gone -= forget ? 1 : 0;
    at = forget ? replicas_.erase(at) : std::next(at);
  }
}

void Roster::follows(uint64_t id, uint64_t buffer_bytes) {
  const std::lock_guard lock(mutex_);
  Replica* const replica = find(id);
  if (replica == nullptr) return;
  if (!replica->follows) {
    log_event(LogLevel::kInfo, "ship.joined",
              {{"name", replica->name}, {"from", replica->info.from}});
  }
  replica->follows = true;
  replica->buffer_bytes = buffer_bytes;
  changed_.notify_all();
}

// One that comes back under its name is no longer one that left.
void Roster::beats(uint64_t id, const Heartbeat& beat) {
  const std::lock_guard lock(mutex_);
  Replica* const replica = find(id);
  if (replica == nullptr) return;
  if (!beat.name.empty()) replica->name = beat.name;
  for (auto at = replicas_.begin(); at != replicas_.end();) {
    const bool earlier = at->first != id && !at->second.present && at->second.name == replica->name;
    at = earlier ? replicas_.erase(at) : std::next(at);
  }
  if (replica->held != beat.held) replica->applied_at = roster_now();
  replica->held = beat.held;
  replica->late = false;
  replica->error = beat.error;
  changed_.notify_all();
}

void Roster::sent(uint64_t id, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (Replica* const replica = find(id)) replica->bytes += bytes;
}

void Roster::fails(uint64_t id, std::string error) {
  const std::lock_guard lock(mutex_);
  Replica* const replica = find(id);
  if (replica == nullptr || !replica->present) return;
  log_event(LogLevel::kWarning, "ship.failed", {{"name", replica->name}, {"error", error}});
  replica->error = std::move(error);
  changed_.notify_all();
}

void Roster::note(uint64_t id, const std::string& text) {
  const std::lock_guard lock(mutex_);
  const Replica* const replica = find(id);
  if (replica == nullptr || notes_.size() >= kMostNotes) return;
  notes_.push_back(replica->name + ": " + text);
  log_event(LogLevel::kWarning, "ship.note", {{"name", replica->name}, {"note", text}});
}

std::vector<std::string> Roster::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

size_t Roster::num_replicas() const { return followers().size(); }

bool Roster::wait_for_replicas(size_t count, double timeout_seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, roster_seconds(timeout_seconds), [&] {
    return size_t(std::count_if(replicas_.begin(), replicas_.end(), [](const auto& entry) {
             return entry.second.present && entry.second.follows;
           })) >= count;
  });
}

Roster::Ids Roster::followers() const {
  const std::lock_guard lock(mutex_);
  Ids ids;
  for (const auto& [id, replica] : replicas_) {
    if (replica.present && replica.follows) ids.push_back(id);
  }
  return ids;
}

Roster::Ids Roster::pushed() const {
  const std::lock_guard lock(mutex_);
  Ids ids;
  for (const auto& [id, replica] : replicas_) {
    const bool takes = replica.buffer_bytes != 0 && replica.strikes < kMostStrikes;
    if (replica.present && replica.follows && takes) ids.push_back(id);
  }
  return ids;
}

uint64_t Roster::least_buffer(const Ids& ids) const {
  const std::lock_guard lock(mutex_);
  uint64_t least = UINT64_MAX;
  for (const uint64_t id : ids) {
    const auto found = replicas_.find(id);
    if (found != replicas_.end()) least = std::min(least, found->second.buffer_bytes);
  }
  return least;
}

uint64_t Roster::begin_round() {
  const std::lock_guard lock(mutex_);
  return ++round_;
}

void Roster::answers(uint64_t id, uint64_t round, std::string error) {
  const std::lock_guard lock(mutex_);
  Replica* const replica = find(id);
  if (replica == nullptr || round > round_) return;
  replica->round = round;
  replica->round_error = std::move(error);
  changed_.notify_all();
}

Roster::Round Roster::wait_round(const Ids& ids, uint64_t round, double timeout_seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, roster_seconds(timeout_seconds), [&] {
    return std::all_of(ids.begin(), ids.end(), [&](uint64_t id) {
      const Replica* const replica = find(id);
      return replica == nullptr || !replica->present || replica->round == round;
    });
  });
  Round result;
  for (const uint64_t id : ids) {
    const Replica* const replica = find(id);
    if (replica == nullptr || !replica->present) continue;
    const bool good = replica->round == round && replica->round_error.empty();
    (good ? result.answered : result.others).push_back(id);
  }
  return result;
}

void Roster::strike(uint64_t id) {
  const std::lock_guard lock(mutex_);
  Replica* const replica = find(id);
  if (replica == nullptr) return;
  ++replica->strikes;
  log_event(LogLevel::kWarning, "ship.not_in_group",
            {{"name", replica->name},
             {"error", replica->round_error.empty() ? "did not come" : replica->round_error}});
}

void Roster::set_group(const Ids& ids) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, replica] : replicas_) replica.rank.reset();
  for (size_t i = 0; i < ids.size(); ++i) {
    Replica* const replica = find(ids[i]);
    if (replica == nullptr) continue;
    replica->rank = unsigned(i) + 1;
    replica->strikes = 0;
  }
}

void Roster::begin_version() {
  const std::lock_guard lock(mutex_);
  notes_.clear();
  for (auto& [id, replica] : replicas_) {
    replica.bytes = 0;
    if (replica.present) replica.error.clear();
  }
}

void Roster::commit_version() {
  const std::lock_guard lock(mutex_);
  committed_at_ = roster_now();
}

bool Roster::is_settled(const Replica& replica, const Identity& version) const {
  return !replica.follows || !replica.present || replica.late || !replica.error.empty() ||
         (replica.held && reaches(*replica.held, version));
}

void Roster::wait_applied(const Identity& version, double timeout_seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, roster_seconds(timeout_seconds), [&] {
    return std::all_of(replicas_.begin(), replicas_.end(),
                       [&](const auto& entry) { return is_settled(entry.second, version); });
  });
  for (auto& [id, replica] : replicas_) {
    if (!is_settled(replica, version)) replica.late = true;
  }
}

std::vector<Shipped> Roster::shipped(const std::optional<Identity>& version) const {
  const std::lock_guard lock(mutex_);
  std::vector<Shipped> all;
  for (const auto& [id, replica] : replicas_) {
    if (!replica.follows || (replica.told_in && version && replica.told_in != version)) continue;
    Shipped one{replica.name, replica.info.from, replica.rank, version_of(replica.held), replica.bytes, 0,
                replica.error};
    const bool holds = version && replica.held && reaches(*replica.held, *version);
    if (holds) one.seconds = std::max(0.0, replica.applied_at - committed_at_);
    if (holds) one.error.clear();  // and may have left since
    if (!holds && !replica.present && one.error.empty()) one.error = "has left";
    if (version && !holds && one.error.empty()) {
      one.error = replica.held ? "is at " + to_string(*replica.held)
                               : "has not said which version it holds";
    }
    if (!holds && !replica.present && version) replica.told_in = version;
    all.push_back(std::move(one));
  }
  return all;
}

double Roster::last_applied() const {
  const std::lock_guard lock(mutex_);
  double last = 0;
  for (const auto& [id, replica] : replicas_) {
    if (replica.follows && replica.applied_at > committed_at_) {
      last = std::max(last, replica.applied_at);
    }
  }
  return last;
}

std::set<uint64_t> Roster::held_versions(const std::string& run) const {
  const std::lock_guard lock(mutex_);
  std::set<uint64_t> versions;
  for (const auto& [id, replica] : replicas_) {
    if (replica.follows && replica.held && replica.held->run == run) {
      versions.insert(replica.held->version);
    }
  }
  return versions;
}

}  // namespace deltawire
