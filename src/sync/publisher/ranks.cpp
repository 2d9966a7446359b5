#include "sync/publisher/ranks.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/sync_point.h"
#include "chain/names.h"

namespace deltawire {
namespace {

constexpr double kFirstPause = 0.005, kLongestPause = 1.0;
// Of the looks for missing reports all but one in so many trust the listing.
constexpr unsigned kLookDirectly = 8;
constexpr uint64_t kMaxSmallBytes = 1 << 20;
constexpr std::string_view kDoneSuffix = "/done.json";

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// None when there is no such object.
Result<std::optional<std::string>> get_if_there(Store& store, const std::string& name,
                                                uint64_t max_bytes) {
  Result<std::string> text = store.get(name, max_bytes);
  if (text.ok()) return std::optional(std::move(*text));
  if (text.status().code() == Code::kNotFound) return std::optional<std::string>();
  return std::move(text).status();
}

std::string list_ranks(const std::vector<unsigned>& ranks) {
  std::string text;
  for (const unsigned rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string seconds_text(double seconds) { return std::to_string(int64_t(seconds + 0.5)) + " s"; }

}  // namespace

Result<bool> poll_until(const PublishOptions& options, double seconds,
                        const std::function<Result<bool>()>& done) {
  const double end = now_seconds() + seconds;
  for (double pause = kFirstPause;; pause = std::min(pause * 1.5, kLongestPause)) {
    DW_ASSIGN_OR_RETURN(const bool ready, done());
    if (ready) return true;
    const double left = end - now_seconds();
    if (left <= 0) return false;
    if (options.progress && !options.progress(0, 0)) return cancelled("stopped on request");
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(pause, left)));
  }
}

Status RankExchange::announce(const RankBegin& begin) {
  // How earlier attempts ended must stay known: a slow rank may still wait to hear it, and would
  // else take the new attempt for a continuation of the old one.
  remove_pending([](std::string_view name) { return !name.ends_with(kDoneSuffix); });
  DW_SYNC_POINT("ranks: before begin");
  const std::string text = serialise_begin(begin);
  return chain_.store().put(begin_name(version_), MemoryBody(text));
}

Result<std::optional<RankReport>> RankExchange::read_report(const RankBegin& begin,
                                                            unsigned rank) const {
  const std::string name = report_name(version_, begin.attempt, rank);
  DW_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                      get_if_there(chain_.store(), name, kMaxManifestBytes));
  if (!text) return std::optional<RankReport>();
  Result<RankReport> report = parse_report(*text);
  if (!report.ok()) return std::move(report).status().at(chain_.store().url() + "/" + name);
  if (report->rank != rank) {
    return corruption(chain_.store().url() + "/" + name + ": says that it is of rank " +
                      std::to_string(report->rank));
  }
  return std::optional(std::move(*report));
}

Result<std::vector<RankReport>> RankExchange::collect(const RankBegin& begin) {
  std::vector<std::optional<RankReport>> reports(options_.world);
  unsigned looks = 0;
  const auto look = [&]() -> Result<bool> {
    std::set<std::string> listed;
    const bool directly = looks++ % kLookDirectly == 0;
    if (!directly) {
      DW_RETURN_IF_ERROR(list_all(chain_.store(), pending_folder(version_, begin.attempt), "",
                                  [&](const ObjectInfo& object) {
                                    listed.insert(object.name);
                                    return true;
                                  }));
    }
    bool all = true;
    for (unsigned rank = 1; rank < options_.world; ++rank) {
      if (reports[rank]) continue;
      if (directly || listed.contains(report_name(version_, begin.attempt, rank))) {
        DW_ASSIGN_OR_RETURN(reports[rank], read_report(begin, rank));
      }
      if (reports[rank] && !reports[rank]->failure.empty()) {
        return Status(Code::kCancelled, "rank " + std::to_string(rank) + " (" +
                                            reports[rank]->publisher +
                                            ") failed: " + reports[rank]->failure);
      }
      all = all && reports[rank].has_value();
    }
    return all;
  };
  DW_ASSIGN_OR_RETURN(const bool all, poll_until(options_, options_.rank_timeout_seconds, look));
  if (!all) {
    std::vector<unsigned> missing;
    for (unsigned rank = 1; rank < options_.world; ++rank) {
      if (!reports[rank]) missing.push_back(rank);
    }
    return unavailable("version " + std::to_string(version_) + ": nothing from " +
                       list_ranks(missing) + " of " + std::to_string(options_.world) + " within " +
                       seconds_text(options_.rank_timeout_seconds) + "; nothing was committed");
  }
  std::vector<RankReport> others;
  for (unsigned rank = 1; rank < options_.world; ++rank)
    others.push_back(std::move(*reports[rank]));
  return others;
}

void RankExchange::end(const RankBegin& begin, const RankDone& done) {
  const std::string text = serialise_done(done);
  (void)chain_.store().put(done_name(version_, begin.attempt), MemoryBody(text));
}

void RankExchange::clean_up() {
  remove_pending([](std::string_view) { return true; });
}

void RankExchange::remove_pending(const std::function<bool(std::string_view)>& which) {
  std::vector<std::string> names;
  const std::string prefix = std::string(kPendingPrefix) + number_name(version_);
  const Status listed = list_all(chain_.store(), prefix, "", [&](const ObjectInfo& object) {
    if (which(object.name)) names.push_back(object.name);
    return true;
  });
  if (!listed.ok()) return;  // what is left is gc's
  for (const std::string& name : names) (void)chain_.store().remove(name);
}

Status RankExchange::report(const RankBegin& begin, const RankReport& report) {
  DW_SYNC_POINT("ranks: before report");
  const std::string text = serialise_report(report);
  return chain_.store().put(report_name(version_, begin.attempt, report.rank), MemoryBody(text));
}

Result<std::optional<RankDone>> RankExchange::read_done(const std::string& attempt) const {
  DW_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                      get_if_there(chain_.store(), done_name(version_, attempt), kMaxSmallBytes));
  if (!text) return std::optional<RankDone>();
  DW_ASSIGN_OR_RETURN(RankDone done, parse_done(*text));
  return std::optional(std::move(done));
}

Result<std::optional<RankBegin>> RankExchange::read_begin(const std::set<std::string>& past) const {
  DW_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                      get_if_there(chain_.store(), begin_name(version_), kMaxSmallBytes));
  if (!text) return std::optional<RankBegin>();
  DW_ASSIGN_OR_RETURN(RankBegin begin, parse_begin(*text));
  if (past.contains(begin.attempt) || begin.run != chain_.run() || begin.version != version_) {
    return std::optional<RankBegin>();
  }
  return std::optional(std::move(begin));
}

Result<std::set<std::string>> RankExchange::ended_attempts() const {
  std::set<std::string> attempts;
  std::string prefix = pending_folder(version_, "");
  prefix.pop_back();  // its '/'
  DW_RETURN_IF_ERROR(list_all(chain_.store(), prefix, "", [&](const ObjectInfo& object) {
    std::string_view name = object.name;
    if (!name.ends_with(kDoneSuffix)) return true;
    name.remove_suffix(kDoneSuffix.size());
    attempts.emplace(name.substr(prefix.size()));
    return true;
  }));
  return attempts;
}

// Every publish of rank 0 that failed fails one of each other rank, even of those that come to hear
// of it late: else weights of one step would go into the version of the next.
Result<std::optional<RankEvent>> RankExchange::missed_failure(
    std::string_view announced, const std::set<std::string>& past) const {
  DW_ASSIGN_OR_RETURN(std::set<std::string> ended, ended_attempts());
  if (!announced.empty()) ended.emplace(announced);
  for (const std::string& attempt : ended) {
    if (past.contains(attempt)) continue;
    DW_ASSIGN_OR_RETURN(std::optional<RankDone> done, read_done(attempt));
    // What was decided on reports of all ranks without this one is of an earlier process.
    if (done && !done->unchanged) return std::optional(RankEvent{attempt, {}, {}, std::move(done)});
  }
  return std::optional<RankEvent>();
}

// The order of the questions matters: how an attempt ended is put before the next is announced, so
// whoever sees the next and then finds no end of the first knows that it goes on.
Result<std::optional<RankEvent>> RankExchange::look(const std::string& current,
                                                    const std::set<std::string>& past) const {
  DW_ASSIGN_OR_RETURN(std::optional<RankBegin> begin, read_begin(past));
  if (!current.empty()) {
    Result<VersionRecord> record = chain_.version(version_);
    if (record.ok()) return std::optional(RankEvent{current, {}, std::move(*record), {}});
    if (record.status().code() != Code::kNotFound) return std::move(record).status();
    DW_ASSIGN_OR_RETURN(std::optional<RankDone> done, read_done(current));
    if (done) return std::optional(RankEvent{current, {}, {}, std::move(done)});
  } else {
    DW_ASSIGN_OR_RETURN(std::optional<RankEvent> missed,
                        missed_failure(begin ? begin->attempt : "", past));
    if (missed) return missed;
  }
  if (!begin || begin->attempt == current) return std::optional<RankEvent>();
  DW_ASSIGN_OR_RETURN(const std::optional<RankDone> ended, read_done(begin->attempt));
  if (ended) return std::optional<RankEvent>();
  if (begin->world != options_.world) {
    return invalid_argument("rank " + std::to_string(options_.rank) + " expects " +
                            std::to_string(options_.world) + " ranks, rank 0 announces " +
                            std::to_string(begin->world));
  }
  const std::string attempt = begin->attempt;
  return std::optional(RankEvent{attempt, std::move(begin), {}, {}});
}

Result<RankEvent> RankExchange::wait(const std::string& current,
                                     const std::set<std::string>& past) {
  std::optional<RankEvent> event;
  DW_ASSIGN_OR_RETURN(const bool came,
                      poll_until(options_, options_.rank_timeout_seconds, [&]() -> Result<bool> {
                        DW_ASSIGN_OR_RETURN(event, look(current, past));
                        return event.has_value();
                      }));
  if (came) return std::move(*event);
  return unavailable("rank " + std::to_string(options_.rank) + ": rank 0 has not " +
                     (current.empty() ? "announced" : "committed") + " version " +
                     std::to_string(version_) + " within " +
                     seconds_text(options_.rank_timeout_seconds));
}

}  // namespace deltawire
