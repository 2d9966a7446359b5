// What rank 0 does. rank_rules.h has the rules in words.
#include "publish/rank_rules.h"

namespace deltawire::ranks {
namespace {

Leader asking(Leader leader, Leader::Ask ask) {
  leader.ask = ask;
  return leader;
}

Leader over(Leader leader, Leader::Verdict verdict) {
  leader.verdict = verdict;
  return asking(std::move(leader), Leader::Ask::kOver);
}

Leader ending(Leader leader, std::string attempt, uint64_t step, Ending ending, std::string why) {
  leader.about = std::move(attempt);
  leader.about_step = step;
  leader.ending = ending;
  leader.why = std::move(why);
  return asking(std::move(leader), Leader::Ask::kPutEnd);
}

Leader ending_own(Leader leader, Ending how, std::string why) {
  const std::string attempt = leader.attempt;
  const uint64_t step = leader.step;
  return ending(std::move(leader), attempt, step, how, std::move(why));
}

// Asks for the report of the first rank from `rank` on that is missing.
Leader collect_from(Leader leader, unsigned rank) {
  if (leader.missing.empty()) return asking(std::move(leader), Leader::Ask::kDecide);
  const auto next = leader.missing.lower_bound(rank);
  if (next == leader.missing.end()) return asking(std::move(leader), Leader::Ask::kReadManifest);
  leader.about_rank = *next;
  return asking(std::move(leader), Leader::Ask::kReadReport);
}

std::string list_ranks(const std::set<unsigned>& ranks) {
  std::string text;
  for (const unsigned rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

}  // namespace

Leader start_leading(uint64_t version, uint64_t step, unsigned world, std::string attempt,
                     bool full, std::optional<Leader::Open> open) {
  Leader leader;
  leader.version = version;
  leader.step = step;
  leader.world = world;
  leader.attempt = std::move(attempt);
  leader.full = full;
  leader.open = std::move(open);
  if (!leader.open) return leader;
  const Leader::Open own = *leader.open;
  return ending(std::move(leader), own.attempt, own.step, Ending::kFailed, own.why);
}

Leader put_end(Leader leader, const Status& status) {
  if (leader.about == leader.attempt) {  // this publish is over
    if (!status.ok()) leader.open = {leader.attempt, leader.step, leader.why};
    const bool unchanged = leader.ending == Ending::kUnchanged;
    if (unchanged && status.ok()) return over(std::move(leader), Leader::Verdict::kUnchanged);
    if (unchanged) leader.failure = status;
    return over(std::move(leader), Leader::Verdict::kFailed);
  }
  if (!status.ok()) return failed(std::move(leader), status);
  const bool own = leader.open && leader.open->attempt == leader.about;
  if (!own) return asking(std::move(leader), Leader::Ask::kPutBegin);
  leader.open.reset();
  return asking(std::move(leader), Leader::Ask::kReadBegin);
}

Leader read_begin(Leader leader, const std::optional<AttemptSeen>& seen) {
  if (!seen) return asking(std::move(leader), Leader::Ask::kPutBegin);
  leader.about = seen->id;
  leader.about_step = seen->step;
  return asking(std::move(leader), Leader::Ask::kReadEnd);
}

Leader read_end(Leader leader, const std::optional<EndSeen>& end) {
  if (end) return asking(std::move(leader), Leader::Ask::kPutBegin);
  const std::string left = leader.about;
  const uint64_t step = leader.about_step;
  return ending(std::move(leader), left, step, Ending::kSuperseded, "rank 0 was started anew");
}

Leader put_begin(Leader leader, const Status& status) {
  leader.announced = true;  // whatever the store says
  if (!status.ok()) return failed(std::move(leader), status);
  return asking(std::move(leader), Leader::Ask::kPrepare);
}

Leader prepared(Leader leader) {
  for (unsigned rank = 1; rank < leader.world; ++rank) leader.missing.insert(rank);
  return collect_from(std::move(leader), 0);
}

Leader read_report(Leader leader, bool there) {
  const unsigned rank = leader.about_rank;
  if (there) leader.missing.erase(rank);
  return collect_from(std::move(leader), rank + 1);
}

Leader read_manifest(Leader leader, bool there) {
  if (!there) return asking(std::move(leader), Leader::Ask::kPause);
  const std::string version = std::to_string(leader.version);
  return failed(std::move(leader), conflict("version " + version + " was published by another"));
}

Leader paused(Leader leader, Pause how, double seconds) {
  if (how == Pause::kStopped) return failed(std::move(leader), cancelled("stopped on request"));
  if (how == Pause::kGoOn) return collect_from(std::move(leader), 0);
  Status status =
      unavailable("version " + std::to_string(leader.version) + ": nothing from " +
                  list_ranks(leader.missing) + " of " + std::to_string(leader.world) + " within " +
                  std::to_string(int64_t(seconds + 0.5)) + " s; nothing was committed");
  return failed(std::move(leader), std::move(status));
}

Leader decided(Leader leader, Decision decision) {
  switch (decision) {
    case Decision::kCommit:
      return asking(std::move(leader), Leader::Ask::kCommit);
    case Decision::kFull:
      leader.full = true;
      return asking(std::move(leader), Leader::Ask::kPutBegin);
    case Decision::kUnchanged:
      break;
  }
  return ending_own(std::move(leader), Ending::kUnchanged, "");
}

Leader committed(Leader leader) { return over(std::move(leader), Leader::Verdict::kCommitted); }

Leader may_be_committed(Leader leader, Status status) {
  // While the version may yet appear nobody is told that it will not.
  leader.open = {leader.attempt, leader.step, status.to_string()};
  leader.failure = std::move(status);
  return over(std::move(leader), Leader::Verdict::kFailed);
}

Leader failed(Leader leader, Status status) {
  leader.failure = std::move(status);
  if (!leader.announced) return over(std::move(leader), Leader::Verdict::kFailed);
  const std::string why = leader.failure.to_string();
  return ending_own(std::move(leader), Ending::kFailed, why);
}

}  // namespace deltawire::ranks
