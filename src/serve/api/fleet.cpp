#include "serve/api/fleet.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "chain/heartbeat.h"
#include "chain/names.h"
#include "serve/api/answers.h"

namespace deltawire {
namespace {

// A replica that lacks only a version this young does not count as behind.
constexpr int64_t kYoungSeconds = 10;
// How long an engine may take to load its replica's version before it counts as behind.
constexpr int64_t kLoadSeconds = 60;
constexpr size_t kMostRemoved = 4096;  // that are told to those who ask for what changed

std::string_view state_of(const FleetRow& row, int64_t now) {
  if (row.listed.is_gone()) return "gone";
  if (!row.listed.heartbeat.ok()) return "unreadable";
  const Heartbeat& beat = *row.listed.heartbeat;
  if (row.standing.elsewhere || row.standing.word == "ahead") return "other";
  if (!beat.error.empty()) return "failed";
  if (row.standing.lag == 0U) return "current";
  if (row.standing.lag && row.behind_since && now - *row.behind_since < kYoungSeconds) {
    return "current";
  }
  return beat.lease ? "fetching" : "behind";
}

// Only processes that stay send an interval.
bool is_restart(const Heartbeat& before, const Heartbeat& now) {
  return before.session != now.session && before.interval_seconds != 0 && now.interval_seconds != 0;
}

bool is_loading(const Heartbeat& beat) { return beat.serving && beat.serving != beat.held; }

// The event of a failed pull: a failed proof, a refused version, or another error.
ChainEvent event_of_error(const std::string& error) {
  if (is_failed_proof(error)) return {.kind = "failed_proof", .state = "error"};
  if (error.starts_with("invalid argument") || error.starts_with("unsupported") ||
      is_bad_signature(error)) {
    return {.kind = "refused", .state = "warning"};
  }
  return {.kind = "error", .state = "error"};
}

Json row_json(const std::string& id, const FleetRow& row) {
  Json json = {{"id", id.substr(kReplicaPrefix.size())},
               {"name", row.name()},
               {"host", row.host()},
               {"lag_versions", or_null(row.standing.lag)},
               {"behind_since", or_null(row.behind_since)},
               {"state_since", row.state_since == 0 ? Json() : Json(row.state_since)},
               {"seen", row.seen},
               {"pause_seconds", nullptr},
               {"restarts", row.restarts},
               {"state", row.state}};
  for (const char* key :
       {"pid", "run", "version", "serving", "serving_run", "fetching", "interval", "error"}) {
    json[key] = nullptr;
  }
  json["proof"] = "unknown";
  if (!row.listed.heartbeat.ok()) {
    json["error"] = row.listed.heartbeat.status().to_string();
    return json;
  }
  const Heartbeat& beat = *row.listed.heartbeat;
  json["pid"] = beat.pid;
  if (beat.interval_seconds != 0) json["interval"] = beat.interval_seconds;
  if (beat.lease) json["fetching"] = beat.lease->to;
  if (!beat.error.empty()) json["error"] = beat.error;
  if (beat.pause_microseconds) json["pause_seconds"] = double(*beat.pause_microseconds) / 1e6;
  if (beat.serving) {
    json["serving"] = beat.serving->version;
    json["serving_run"] = beat.serving->run;
  }
  if (beat.held) {
    json["run"] = beat.held->run;
    json["version"] = beat.held->version;
    json["proof"] = row.standing.elsewhere ? "differs" : row.standing.lag ? "proven" : "unknown";
  }
  return json;
}

}  // namespace

bool is_failed_proof(const std::string& error) {
  return (error.starts_with("corruption") || error.starts_with("base mismatch")) &&
         !is_bad_signature(error);
}

bool is_bad_signature(const std::string& error) {
  return error.find(": signature: ") != error.npos;  // as a verifier says
}

std::string FleetRow::name() const {
  return listed.heartbeat.ok() ? listed.heartbeat->name
                               : listed.object.name.substr(kReplicaPrefix.size());
}

std::string FleetRow::host() const {
  return listed.heartbeat.ok() ? listed.heartbeat->host : std::string();
}

Result<bool> Fleet::refresh(const Chain& chain, const std::optional<Identity>& head,
                            const std::function<Status()>& look_for_head,
                            const std::function<std::optional<int64_t>(uint64_t)>& created,
                            std::mutex* mutex, ChainEvents* events) {
  constexpr double kClockSeconds = 60;
  if (steady_seconds() - clock_asked_ > kClockSeconds) {
    const Result<int64_t> clock = chain.store().clock();
    clock_ahead_ = clock.ok() ? *clock - unix_seconds() : 0;
    clock_asked_ = steady_seconds();
  }
  const int64_t now = unix_seconds();
  // Times of objects are whole seconds: one of this second may be written again in it.
  const auto known = [&](const ObjectInfo& object) -> const ListedHeartbeat* {
    const auto found = rows_.find(object.name);
    if (found == rows_.end() || now + clock_ahead_ - object.modified <= 2) return nullptr;
    const ObjectInfo& before = found->second.listed.object;
    const bool same = before.modified == object.modified && before.size_bytes == object.size_bytes;
    return same ? &found->second.listed : nullptr;
  };
  DW_ASSIGN_OR_RETURN(std::vector<ListedHeartbeat> beats, list_heartbeats(chain.store(), known));
  if (beats.empty() && !rows_.empty()) {  // or is all of the store gone?
    DW_RETURN_IF_ERROR(chain.store().stat(kRunName).status());
  }
  // One may hold a version that was published after we last looked.
  const auto is_ahead = [&](const ListedHeartbeat& listed) {
    if (!listed.heartbeat.ok() || !listed.heartbeat->held) return false;
    const Identity& held = *listed.heartbeat->held;
    return held.run == chain.run() && (!head || held.version > head->version);
  };
  if (std::any_of(beats.begin(), beats.end(), is_ahead)) DW_RETURN_IF_ERROR(look_for_head());
  if (!standings_) standings_.emplace(chain, head);
  if (head) standings_->set_head(*head);

  const uint64_t next = revision_ + 1;
  bool changed = false;
  std::map<std::string, FleetRow> rows;
  Counts counts = {{"current", 0}, {"engine_behind", 0}, {"behind", 0},     {"fetching", 0},
                   {"failed", 0},  {"other", 0},         {"unreadable", 0}, {"gone", 0}};
  for (ListedHeartbeat& listed : beats) {
    const auto found = rows_.find(listed.object.name);
    const FleetRow* const before = found == rows_.end() ? nullptr : &found->second;
    DW_ASSIGN_OR_RETURN(FleetRow row, make_row(std::move(listed), head, created, now));
    const Result<Heartbeat>& beat = row.listed.heartbeat;
    const Result<Heartbeat>* const old = before == nullptr ? nullptr : &before->listed.heartbeat;
    const bool both = old != nullptr && old->ok() && beat.ok();
    const double then = old != nullptr || looked_ ? unix_seconds_now() : 0;
    row.held_since = both && (*old)->held == beat->held ? before->held_since : then;
    if (before != nullptr) row.restarts = before->restarts + (both && is_restart(**old, *beat));
    const bool waits = beat.ok() && is_loading(*beat), waited = both && is_loading(**old);
    row.told = waits && waited && (*old)->serving == beat->serving ? before->told : row.seen;
    if (row.state == "current" && waits && now - row.told > kLoadSeconds) {
      row.state = "engine_behind";
    }
    ++counts[row.state];
    row.state_since = old != nullptr && before->state == row.state ? before->state_since : then;
    const bool same = (both ? **old == *beat : old != nullptr && old->ok() == beat.ok()) &&
                      before->state == row.state && before->standing.lag == row.standing.lag &&
                      before->behind_since == row.behind_since;
    row.revision = same ? before->revision : next;
    changed = changed || !same;
    std::string name = row.listed.object.name;
    rows.emplace(std::move(name), std::move(row));
  }
  const std::lock_guard lock(*mutex);
  for (const auto& [name, row] : rows) {
    const auto before = rows_.find(name);
    if (looked_ && row.revision == next) {
      compare(before == rows_.end() ? nullptr : &before->second, row, events);
    }
  }
  for (const auto& [name, row] : rows_) {
    if (rows.contains(name)) continue;
    changed = true;
    removed_.emplace(next, name);
    events->add({.kind = "removed",
                 .text = "the heartbeat of " + row.name() + " was removed",
                 .replica = row.name(),
                 .host = row.host()});
  }
  while (removed_.size() > kMostRemoved) {
    forgotten_ = removed_.begin()->first;
    removed_.erase(removed_.begin());
  }
  rows_ = std::move(rows);
  counts_ = std::move(counts);
  looked_ = true;
  if (changed) revision_ = next;
  return changed;
}

Result<FleetRow> Fleet::make_row(ListedHeartbeat listed, const std::optional<Identity>& head,
                                 const std::function<std::optional<int64_t>(uint64_t)>& created,
                                 int64_t now) {  // by our clock
  FleetRow row{std::move(listed)};
  const Result<Heartbeat>& beat = row.listed.heartbeat;
  const bool is_dated = row.listed.object.modified != 0 || !beat.ok();
  row.seen = is_dated ? row.listed.object.modified - clock_ahead_ : beat->seen;
  row.listed.age_seconds = std::max<int64_t>(0, now - row.seen);
  if (beat.ok()) {
    DW_ASSIGN_OR_RETURN(row.standing, standings_->of(*beat));
    const uint64_t lacks = row.standing.lag ? beat->held->version + 1 : 0;
    if (head && !row.standing.elsewhere && lacks <= head->version)
      row.behind_since = created(lacks);
  }
  row.state = state_of(row, now);
  return row;
}

void Fleet::compare(const FleetRow* before, const FleetRow& now, ChainEvents* events) const {
  const auto tell = [&](ChainEvent event, const std::string& what) {
    event.replica = now.name();
    event.host = now.host();
    event.text = now.name() + " " + what;
    if (!event.version && now.listed.heartbeat.ok()) {
      event.version = version_of(now.listed.heartbeat->held);
    }
    events->add(std::move(event));
  };
  const Result<Heartbeat>& beat = now.listed.heartbeat;
  const std::optional<uint64_t> version = beat.ok() ? version_of(beat->held) : std::nullopt;
  const std::string held = version ? "holds version " + std::to_string(*version) : "holds nothing";
  if (before == nullptr) {
    tell({.kind = "joined"}, "is new and " + held);
    if (beat.ok() && !beat->error.empty()) {
      tell(event_of_error(beat->error), "failed: " + beat->error);
    }
    return;
  }
  if (now.state == "gone" && before->state != "gone") {
    return tell({.kind = "gone", .state = "warning"}, "sends no heartbeats any more");
  }
  if (now.state != "gone" && before->state == "gone") {
    tell({.kind = "recovered"}, "sends heartbeats again and " + held);
  }
  if (!beat.ok() || !before->listed.heartbeat.ok()) return;
  const Heartbeat& old = *before->listed.heartbeat;
  if (is_restart(old, *beat)) {
    tell({.kind = "restarted", .state = "warning"},
         "was restarted as process " + std::to_string(beat->pid));
  }
  if (beat->error != old.error && !beat->error.empty()) {
    tell(event_of_error(beat->error), "failed: " + beat->error);
  }
  if (beat->error.empty() && !old.error.empty())
    tell({.kind = "recovered"}, "recovered and " + held);
  const auto lags = [](const FleetRow& row) {
    return row.state == "behind" || row.state == "fetching";
  };
  if (lags(now) && before->state == "current") {
    tell({.kind = "behind", .state = "warning"},
         "is " + plural(*now.standing.lag, "version") + " behind and " + held);
  }
  if (lags(*before) && now.state == "current") {
    tell({.kind = "recovered"}, "is no longer behind and " + held);
  }
  if (version && beat->held != old.held) {
    const std::optional<uint64_t> from = version_of(old.held);
    tell({.kind = "catch_up"}, (from ? "moved from version " + std::to_string(*from) + " to "
                                     : "fetched its first version, ") +
                                   std::to_string(*version));
  }
}

Json Fleet::to_json(std::optional<uint64_t> since) const {
  const bool complete = !since || *since > revision_ || *since < forgotten_;
  Json rows = Json::array(), removed = Json::array();
  for (const auto& [name, row] : rows_) {
    if (complete || row.revision > *since) rows.push_back(row_json(name, row));
  }
  if (!complete) {
    for (auto at = removed_.upper_bound(*since); at != removed_.end(); ++at) {
      removed.push_back(at->second.substr(kReplicaPrefix.size()));
    }
  }
  return {{"revision", revision_},
          {"complete", complete},
          {"counts", counts_},
          {"removed", std::move(removed)},
          {"replicas", std::move(rows)}};
}

}  // namespace deltawire
