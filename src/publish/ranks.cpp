#include "publish/ranks.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/sync_point.h"
#include "chain/names.h"

namespace deltawire {
namespace {

constexpr double kFirstPause = 0.005, kLongestPause = 1.0;
constexpr uint64_t kMaxRankBytes = 1 << 20;
constexpr std::string_view kDoneSuffix = "/done.json";

// None when there is no such object.
Result<std::optional<std::string>> get_if_there(Store& store, const std::string& name,
                                                uint64_t max_bytes) {
  Result<std::string> text = store.get(name, max_bytes);
  if (text.ok()) return std::optional(std::move(*text));
  if (text.status().code() == Code::kNotFound) return std::optional<std::string>();
  return std::move(text).status();
}

}  // namespace

Result<std::optional<std::string>> RankExchange::begin_text() const {
  return get_if_there(chain_.store(), begin_name(version_), kMaxRankBytes);
}

Result<RankBegin> RankExchange::read_begin(const std::string& text) const {
  const std::string place = place_of(begin_name(version_));
  Result<RankBegin> begin = parse_begin(text, keys_.trust);
  if (!begin.ok()) return std::move(begin).status().at(place);
  RankAttempt expected = begin->of;
  expected.run = chain_.run();
  expected.version = version_;
  DW_RETURN_IF_ERROR(check_belongs(begin->of, expected).at(place));
  return begin;
}

Status RankExchange::put_begin(const RankBegin& begin) const {
  DW_SYNC_POINT("ranks: before begin");
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_begin(begin, keys_.sign));
  return chain_.store().put(begin_name(version_), MemoryBody(text));
}

Result<RankDone> RankExchange::parse_done_at(const std::string& name,
                                             const std::string& text) const {
  Result<RankDone> done = parse_done(text, keys_.trust);
  if (!done.ok()) return std::move(done).status().at(place_of(name));
  RankAttempt expected = done->of;
  expected.run = chain_.run();
  expected.version = version_;
  DW_RETURN_IF_ERROR(check_belongs(done->of, expected).at(place_of(name)));
  if (done_name(version_, done->of.attempt) != name) {
    return corruption(place_of(name) + ": belongs to attempt " + done->of.attempt);
  }
  return done;
}

Result<std::optional<RankDone>> RankExchange::read_done(const std::string& attempt) const {
  const std::string name = done_name(version_, attempt);
  DW_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                      get_if_there(chain_.store(), name, kMaxRankBytes));
  if (!text) return std::optional<RankDone>();
  DW_ASSIGN_OR_RETURN(RankDone done, parse_done_at(name, *text));
  return std::optional(std::move(done));
}

Result<std::optional<RankDone>> RankExchange::find_failure(uint64_t step) const {
  std::vector<std::string> names;
  std::string prefix = pending_folder(version_, "");
  prefix.pop_back();  // its '/'
  DW_RETURN_IF_ERROR(list_all(chain_.store(), prefix, "", [&](const ObjectInfo& object) {
    if (object.name.ends_with(kDoneSuffix)) names.push_back(object.name);
    return true;
  }));
  for (const std::string& name : names) {
    DW_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                        get_if_there(chain_.store(), name, kMaxRankBytes));
    if (!text) continue;
    Result<RankDone> done = parse_done_at(name, *text);
    if (!done.ok()) continue;  // only the words are wanted
    if (done->of.step == step && done->ending == ranks::Ending::kFailed) {
      return std::optional(std::move(*done));
    }
  }
  return std::optional<RankDone>();
}

Status RankExchange::put_done(const RankDone& done) const {
  DW_SYNC_POINT("ranks: before done");
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_done(done, keys_.sign));
  return chain_.store().put(done_name(version_, done.of.attempt), MemoryBody(text));
}

Result<std::optional<RankReport>> RankExchange::read_report(const RankAttempt& of, unsigned rank,
                                                            bool full) const {
  const std::string name = report_name(of, rank, full);
  DW_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                      get_if_there(chain_.store(), name, kMaxManifestBytes));
  if (!text) return std::optional<RankReport>();
  Result<RankReport> report = parse_report(*text, keys_.trust);
  if (!report.ok()) return std::move(report).status().at(place_of(name));
  DW_RETURN_IF_ERROR(check_report(*report, of, rank, full).at(place_of(name)));
  return std::optional(std::move(*report));
}

Status RankExchange::put_report(const RankReport& report) const {
  DW_SYNC_POINT("ranks: before report");
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_report(report, keys_.sign));
  if (text.size() > kMaxManifestBytes) {
    return unsupported("the report of rank " + std::to_string(report.rank) + " has " +
                       std::to_string(text.size()) + " bytes, at most " +
                       std::to_string(kMaxManifestBytes) +
                       " are read: it holds too many tensors, or boxes of them");
  }
  return chain_.store().put(report_name(report.of, report.rank, report.full), MemoryBody(text));
}

Result<std::set<std::string>> RankExchange::listed(const RankAttempt& of) const {
  std::set<std::string> names;
  DW_RETURN_IF_ERROR(list_all(chain_.store(), pending_folder(version_, of.attempt), "",
                              [&](const ObjectInfo& object) {
                                names.insert(object.name);
                                return true;
                              }));
  return names;
}

Result<std::optional<VersionRecord>> RankExchange::read_manifest() const {
  Result<VersionRecord> record = chain_.version(version_);
  if (record.ok()) return std::optional(std::move(*record));
  if (record.status().code() == Code::kNotFound) return std::optional<VersionRecord>();
  return std::move(record).status();
}

Status RankExchange::check_manifest(const VersionRecord& record) const {
  if (!keys_.trust) return {};
  const std::string name = manifest_name(version_);
  DW_ASSIGN_OR_RETURN(const std::string text, chain_.store().get(name, kMaxManifestBytes));
  DW_RETURN_IF_ERROR(parse_manifest(text, keys_.trust).status().at(place_of(name)));
  if (record_digest(text) == record.digest) return {};
  return corruption(place_of(name) + ": was changed after it was committed");
}

void RankExchange::remove_reports() const {
  const std::string begin = begin_name(version_);
  remove_pending(number_name(version_), [&](std::string_view name) {
    return name != begin && !name.ends_with(kDoneSuffix);
  });
}

// Of versions before this one there may be what ranks left when another publisher was first.
void RankExchange::clean_up() const {
  const std::string next = std::string(kPendingPrefix) + number_name(version_ + 1);
  remove_pending("", [&](std::string_view name) { return name < next; });
}

void RankExchange::remove_pending(const std::string& version,
                                  const std::function<bool(std::string_view)>& which) const {
  std::vector<std::string> names;
  const std::string prefix = std::string(kPendingPrefix) + version;
  const Status listed = list_all(chain_.store(), prefix, "", [&](const ObjectInfo& object) {
    if (which(object.name)) names.push_back(object.name);
    return true;
  });
  if (!listed.ok()) return;  // what is left is gc's
  for (const std::string& name : names) (void)chain_.store().remove(name);
}

void Pacer::start_over() {
  end_ = steady_seconds() + options_.ranks.timeout_seconds;
  pause_ = kFirstPause;
}

ranks::Pause Pacer::pause() {
  const double left = end_ - steady_seconds();
  if (left <= 0) return ranks::Pause::kTimedOut;
  if (options_.progress && !options_.progress(0, 0)) return ranks::Pause::kStopped;
  std::this_thread::sleep_for(std::chrono::duration<double>(std::min(pause_, left)));
  pause_ = std::min(pause_ * 1.5, kLongestPause);
  return ranks::Pause::kGoOn;
}

}  // namespace deltawire
