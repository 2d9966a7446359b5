#include "serve/api/chain_watch.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/clock.h"
#include "base/guard.h"
#include "chain/chain.h"
#include "chain/head.h"
#include "chain/hop_records.h"
#include "chain/names.h"

namespace deltawire {
namespace {

constexpr uint64_t kMostVersions = 1'000'000;  // that are remembered
constexpr uint64_t kHopVersions = 4096;        // below the head, that may get merged deltas
constexpr double kHopSeconds = 5, kFirstSeconds = 10, kRunSeconds = 5;
// Heartbeats are listed once a second, less often where that takes long.
constexpr double kFleetSeconds = 1, kMostFleetSeconds = 15, kFleetShare = 20;

std::string share_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %%", share * 100);
  return text;
}

}  // namespace

ChainWatch::ChainWatch(std::shared_ptr<Store> store, std::string id, Keys keys, double poll_seconds)
    : store_(std::move(store)),
      id_(std::move(id)),
      keys_(std::move(keys)),
      poll_seconds_(poll_seconds),
      watch_(*store_),
      watcher_([this] { run(); }),
      filler_([this] { fill(); }) {}

ChainWatch::~ChainWatch() {
  end();
  watch_.wake();
  watcher_.join();
  filler_.join();
}

void ChainWatch::end() {
  std::unique_lock lock(mutex_);
  ending_ = true;
  changed_.notify_all();
  work_.notify_all();
  // cpp-httplib does not write the end of a stream once the server is stopping.
  changed_.wait(lock, [this] { return num_streams_ == 0; });
}

Result<Chain> ChainWatch::chain() const {
  if (chain_) return *chain_;
  return failure_.ok() ? unavailable("not read yet") : failure_;
}

void ChainWatch::run() {
  while (!ending_) {
    look();
    watch_.wait(std::min(poll_seconds_, kFleetSeconds), [this] { return ending_.load(); });
  }
}

void ChainWatch::look() {
  Status status = guard_memory("watching a chain", [&]() -> Status {
    DW_RETURN_IF_ERROR(open());
    DW_RETURN_IF_ERROR(look_for_versions());
    if (steady_seconds() >= first_due_) DW_RETURN_IF_ERROR(look_for_first());
    if (steady_seconds() >= hops_due_) DW_RETURN_IF_ERROR(look_for_hops());
    if (const double begin = steady_seconds(); begin >= fleet_due_) {
      const auto created = [this](uint64_t version) {
        const std::lock_guard lock(mutex_);
        return history_.created(version);
      };
      const auto look_for_head = [this] {
        first_due_ = 0;  // gc may have removed versions in between
        return look_for_versions();
      };
      DW_RETURN_IF_ERROR(
          fleet_.refresh(*chain_, head_identity_, look_for_head, created, &mutex_, &events_)
              .status());
      const double took = steady_seconds() - begin;
      fleet_due_ = begin + std::clamp(kFleetShare * took, kFleetSeconds * 0.9, kMostFleetSeconds);
    }
    return {};
  });
  if (!status.ok()) run_due_ = 0;  // is it still the same run?
  if (chain_ && status.code() == Code::kNotFound) {
    status = unavailable(store_->url() + " holds no chain any more: removed, or not mounted");
  }
  const std::lock_guard lock(mutex_);
  const auto is_failure = [](const Status& one) {
    return !one.ok() && one.code() != Code::kNotFound;
  };
  if (is_failure(status) && !is_failure(failure_)) {
    events_.add({.kind = "store",
                 .state = "error",
                 .text = "the store cannot be read: " + status.to_string()});
  } else if (status.ok() && is_failure(failure_)) {
    events_.add({.kind = "store", .text = "the store can be read again"});
  }
  failure_ = status;
  update_health();
  ++changes_;
  changed_.notify_all();
}

// Also notices that the store holds another run.
Status ChainWatch::open() {
  if (chain_ && steady_seconds() < run_due_) return {};
  DW_ASSIGN_OR_RETURN(Chain chain, Chain::open(store_, keys_));
  run_due_ = steady_seconds() + kRunSeconds;
  if (chain_ && chain_->run() == chain.run()) return {};
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain.head());
  std::optional<VersionRecord> record;
  if (head) {
    DW_ASSIGN_OR_RETURN(record, chain.version(*head));
  }
  const std::lock_guard lock(mutex_);
  if (chain_) {
    events_.add(
        {.kind = "store",
         .state = "warning",
         .text = "the store holds another run: " + chain.run() + " instead of " + chain_->run()});
  }
  chain_ = std::move(chain);
  head_.reset();
  head_identity_.reset();
  first_.reset();
  head_seen_ = complete_ = 0;
  history_ = {};
  next_.reset();
  wanted_.clear();
  wanted_one_ulp_.clear();
  told_history_ = false;
  anchors_.clear();
  merged_.clear();
  fleet_ = Fleet();
  layers_ = {};
  read_hops_ = false;
  fleet_due_ = hops_due_ = first_due_ = 0;
  if (record) add(*record, false);
  return {};
}

// One request if there are no new versions.
Status ChainWatch::look_for_versions() {
  while (!ending_) {
    const uint64_t next = head_ ? head_->version + 1 : 0;
    const double asked = unix_seconds_now();
    const Result<VersionRecord> record = chain_->version(next);
    if (record.ok()) {
      look_for_failed(record->manifest);
      const std::lock_guard lock(mutex_);
      add(*record, true);
      fleet_due_ = 0;  // who has it?
      ++changes_;
      changed_.notify_all();
      continue;
    }
    if (record.status().code() != Code::kNotFound) return record.status();
    // gc may have removed the next version meanwhile.
    std::optional<uint64_t> head;
    if (steady_seconds() >= first_due_) {
      DW_ASSIGN_OR_RETURN(head, chain_->head());
    }
    if (!head || *head < next) {
      complete_ = asked;
      return {};
    }
    DW_ASSIGN_OR_RETURN(const VersionRecord newest, chain_->version(*head));
    const std::lock_guard lock(mutex_);
    add(newest, true);
  }
  return {};
}

// Under the mutex.
void ChainWatch::add(const VersionRecord& record, bool is_new) {
  const Manifest& m = record.manifest;
  if (!history_.has(m.version)) history_.add(m, created(m, is_new));
  if (m.kind == VersionKind::kFull) anchors_[m.version] = m.part_bytes();
  if (head_ && head_->version >= m.version) return;
  head_ = m;
  head_identity_ = record.identity();
  head_->digests.clear();  // large, and of no use here
  head_->boxes.clear();
  if (is_new) {
    head_seen_ = unix_seconds_now();
    tell_published(m, 0);
    if (!first_) first_ = m.version;
  } else if (m.version > 0) {
    next_ = m.version - 1;
    floor_ = m.version - std::min(m.version, kMostVersions - 1);
    work_.notify_all();
  } else {
    tell_published(m, double(created(m, false)));
  }
}

// When a version appeared. The publisher's clock may be wrong, so the time is limited to the
// interval between two of our polls, if known.
int64_t ChainWatch::created(const Manifest& manifest, bool is_new) const {
  const int64_t now = unix_seconds(), before = is_new ? int64_t(complete_) : 0;
  return std::clamp(parse_utc(manifest.created), std::min(before, now), now);
}

// Under the mutex.
std::optional<int64_t> ChainWatch::head_created() const {
  return head_ ? history_.created(head_->version) : std::nullopt;
}

void ChainWatch::tell_published(const Manifest& m, double time) {
  std::string text = "version " + std::to_string(m.version) + " was published by " + m.publisher +
                     ": " + size_text(m.part_bytes());
  if (m.kind == VersionKind::kFull) {
    text += ", whole" + (m.reason.empty() ? "" : " (" + m.reason + ")");
  } else if (m.elements != 0) {
    text += ", " + share_text(double(m.changed) / double(m.elements)) + " changed";
  }
  char took[32];
  std::snprintf(took, sizeof took, ", %.1f s", double(m.milliseconds) / 1000);
  events_.add({.kind = "publish",
               .text = text + took,
               .version = m.version,
               .host = m.publisher.substr(0, m.publisher.rfind(':')),
               .time = time});
}

// Counts failed attempts to publish this version that left parts. Called right after the commit,
// because later the folder may also hold merged deltas.
void ChainWatch::look_for_failed(const Manifest& m) {
  constexpr size_t kNumberDigits = 10;
  std::set<std::string> own, others;
  const auto attempt_of = [](const std::string& name) {
    const size_t slash = name.find('/');
    return name.substr(slash + 1, kNumberDigits + 1 + kAttemptDigits);
  };
  for (const PartRef& part : m.parts) own.insert(attempt_of(part.name));
  for (const std::string_view prefix : {kPartPrefix, kFullPrefix}) {
    const auto found =
        store_->list(std::string(prefix) + number_name(m.version) + "-", "", kListPage);
    if (!found.ok()) return;
    for (const ObjectInfo& object : *found) {
      if (!own.contains(attempt_of(object.name))) others.insert(attempt_of(object.name));
    }
  }
  const std::lock_guard lock(mutex_);
  history_.add_failed(m.version, uint32_t(others.size()));
  if (others.empty()) return;
  events_.add({.kind = "failed_publish",
               .state = "warning",
               .text = std::to_string(others.size()) + " other attempt" +
                       (others.size() == 1 ? "" : "s") + " to publish version " +
                       std::to_string(m.version) + " left parts in the store",
               .version = m.version});
}

Status ChainWatch::look_for_first() {
  first_due_ = steady_seconds() + kFirstSeconds;
  if (first_) {
    DW_ASSIGN_OR_RETURN(const bool is_there, has_version(*store_, *first_));
    if (is_there) return {};
  }
  DW_ASSIGN_OR_RETURN(const auto names, store_->list(kManifestPrefix, "", 1));
  const std::lock_guard lock(mutex_);
  const auto first = names.empty() ? std::nullopt : version_of_manifest(names[0].name);
  if (first && first_ && *first > *first_) {
    events_.add({.kind = "gc",
                 .text = "versions before " + std::to_string(*first) + " were removed",
                 .version = *first});
  }
  first_ = first;
  floor_ = std::max(floor_, first.value_or(0));
  return {};
}

Status ChainWatch::look_for_hops() {
  hops_due_ = steady_seconds() + kHopSeconds;
  if (!head_) return {};
  const uint64_t from = read_hops_ ? head_->version - std::min(head_->version, kHopVersions) : 0;
  DW_ASSIGN_OR_RETURN(const std::vector<AddedHop> hops, chain_->added_hops(from, head_->version));
  const std::lock_guard lock(mutex_);
  for (const AddedHop& hop : hops) {
    const bool is_new = hop.base
                            ? merged_.insert_or_assign({hop.version, *hop.base}, hop.bytes).second
                            : anchors_.insert_or_assign(hop.version, hop.bytes).second;
    if (!is_new || !read_hops_) continue;
    const std::string bytes = ": " + size_text(hop.bytes);
    const std::string version = "version " + std::to_string(hop.version);
    events_.add({.kind = hop.base ? "merged" : "anchor",
                 .text = hop.base ? "the deltas from version " + std::to_string(*hop.base) +
                                        " to " + version + " were merged" + bytes
                                  : version + " was stored whole" + bytes,
                 .version = hop.version});
  }
  read_hops_ = true;
  return {};
}

// Under the mutex.
void ChainWatch::update_health() {
  HealthFacts facts{.fleet = fleet_, .failure = failure_, .now = unix_seconds_now()};
  if (head_) {
    facts.head = head_->version;
    facts.head_created = head_created().value_or(0);
    facts.head_seen = head_seen_;
    constexpr uint64_t kLooked = 16;
    const std::optional<int64_t> begin =
        history_.created(head_->version - std::min(head_->version, kLooked));
    const uint64_t count = std::min(head_->version, kLooked);
    if (begin && count > 0) {
      facts.publish_interval = double(facts.head_created - *begin) / double(count);
    }
  }
  health_ = health_of(facts);
}

}  // namespace deltawire
