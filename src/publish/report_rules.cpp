// What all ranks but 0 do. rank_rules.h has the rules in words.
#include "publish/rank_rules.h"

namespace deltawire::ranks {
namespace {

Reporter asking(Reporter reporter, Reporter::Ask ask) {
  reporter.ask = ask;
  return reporter;
}

Reporter asking_end(Reporter reporter, std::string attempt) {
  reporter.about = std::move(attempt);
  return asking(std::move(reporter), Reporter::Ask::kReadEnd);
}

Reporter over(Reporter reporter, Reporter::Verdict verdict) {
  reporter.verdict = verdict;
  return asking(std::move(reporter), Reporter::Ask::kOver);
}

std::string steps_differ(const Reporter& reporter) {
  return "rank 0 publishes step " + std::to_string(reporter.seen->step) + ", rank " +
         std::to_string(reporter.rank) + " step " + std::to_string(reporter.step);
}

// What the end of an attempt of this step means for a publish that is, or could have been, in it.
Reporter take_end(Reporter reporter, const EndSeen& end) {
  if (end.ending == Ending::kUnchanged) {
    if (end.heard_us) return over(std::move(reporter), Reporter::Verdict::kUnchanged);
    const std::string rank = std::to_string(reporter.rank);
    return failed(std::move(reporter),
                  cancelled("rank 0 found nothing changed, by what another process of rank " +
                            rank + " had reported"));
  }
  Status status =
      cancelled("rank 0 gave up version " + std::to_string(reporter.version) + ": " + end.why);
  return failed(std::move(reporter), std::move(status));
}

// An attempt that was announced, and not joined, and has not ended.
Reporter consider(Reporter reporter) {
  if (reporter.seen->step != reporter.step)
    return asking(std::move(reporter), Reporter::Ask::kPause);
  reporter.attempt = reporter.seen->id;
  reporter.full = reporter.seen->full;
  return asking(std::move(reporter), Reporter::Ask::kReport);
}

// This rank has reported to an attempt that has not ended, as far as it can see.
Reporter go_on(Reporter reporter) {
  const std::optional<AttemptSeen> seen = reporter.seen;
  if (!seen || (seen->id != reporter.attempt && seen->step < reporter.step)) {
    return asking(std::move(reporter), Reporter::Ask::kPause);
  }
  if (seen->id == reporter.attempt) {
    if (!seen->full || reporter.full) return asking(std::move(reporter), Reporter::Ask::kPause);
    reporter.full = true;  // a delta turned out not to do
    return asking(std::move(reporter), Reporter::Ask::kReport);
  }
  // Rank 0 has gone on, so there is an end, which this rank does not see.
  if (seen->step > reporter.step) return asking(std::move(reporter), Reporter::Ask::kFindEnd);
  reporter.attempt.clear();
  return asking_end(std::move(reporter), seen->id);
}

}  // namespace

Reporter start_reporting(uint64_t version, uint64_t step, unsigned rank,
                         std::optional<Reporter::Before> before, std::set<std::string> reported) {
  Reporter reporter;
  reporter.version = version;
  reporter.step = step;
  reporter.rank = rank;
  reporter.before = std::move(before);
  reporter.reported = std::move(reported);
  return reporter;
}

// The order of the questions matters: an attempt's end is put before the next one is announced, so
// whoever sees the next and then asks for the end of the first finds it.
Reporter read_begin(Reporter reporter, const std::optional<AttemptSeen>& seen) {
  const auto& before = reporter.before;
  const bool of_others = seen && before && before->over && before->attempt == seen->id;
  reporter.seen = of_others ? std::nullopt : seen;
  return asking(std::move(reporter), Reporter::Ask::kReadManifest);
}

Reporter read_manifest(Reporter reporter, const std::optional<std::string>& attempt) {
  const std::string own = reporter.attempt;
  if (attempt) {
    if (!own.empty() && *attempt == own) {
      return over(std::move(reporter), Reporter::Verdict::kCommitted);
    }
    if (own.empty() && reporter.reported.contains(*attempt)) {
      return over(std::move(reporter), Reporter::Verdict::kMoved);
    }
    const std::string version = std::to_string(reporter.version);
    return failed(std::move(reporter),
                  conflict("version " + version + " was published by another"));
  }
  if (!own.empty()) return asking_end(std::move(reporter), own);
  const std::optional<AttemptSeen> seen = reporter.seen;
  if (!seen || seen->step < reporter.step)
    return asking(std::move(reporter), Reporter::Ask::kPause);
  // What was announced before this process came may be dead; what came since is alive.
  const bool alive = !reporter.before || reporter.before->attempt != seen->id;
  if (alive && seen->step > reporter.step)
    return asking(std::move(reporter), Reporter::Ask::kFindEnd);
  return asking_end(std::move(reporter), seen->id);
}

Reporter read_end(Reporter reporter, const std::optional<EndSeen>& end) {
  const bool joined = reporter.about == reporter.attempt;
  if (!end) return joined ? go_on(std::move(reporter)) : consider(std::move(reporter));
  if (end->ending == Ending::kSuperseded) {
    if (!joined) return asking(std::move(reporter), Reporter::Ask::kPause);
    reporter.attempt.clear();
    return asking(std::move(reporter), Reporter::Ask::kReadBegin);
  }
  if (!joined && reporter.seen->step != reporter.step)
    return asking(std::move(reporter), Reporter::Ask::kFindEnd);
  return take_end(std::move(reporter), *end);
}

// Rank 0 has gone on to a later step: this publish is over, and may hear why.
Reporter found_end(Reporter reporter, const std::optional<EndSeen>& end) {
  if (end && end->ending == Ending::kFailed) return take_end(std::move(reporter), *end);
  Status status = cancelled(steps_differ(reporter) + ", which rank 0 has given up");
  return failed(std::move(reporter), std::move(status));
}

Reporter reported(Reporter reporter) {
  reporter.reported.insert(reporter.attempt);
  return asking(std::move(reporter), Reporter::Ask::kPause);
}

Reporter paused(Reporter reporter, Pause how, double seconds) {
  if (how == Pause::kStopped) return failed(std::move(reporter), cancelled("stopped on request"));
  if (how == Pause::kGoOn) return asking(std::move(reporter), Reporter::Ask::kReadBegin);
  const std::string within = " within " + std::to_string(int64_t(seconds + 0.5)) + " s";
  const bool mismatch = reporter.seen && reporter.seen->step != reporter.step;
  Status status = unavailable(
      mismatch ? steps_differ(reporter) +
                     ": ranks that are not told the step count their publishes, so that all must "
                     "be opened anew together"
               : "rank " + std::to_string(reporter.rank) + ": rank 0 has not " +
                     (reporter.attempt.empty() ? "announced" : "committed") + " version " +
                     std::to_string(reporter.version) + within);
  return failed(std::move(reporter), std::move(status));
}

Reporter failed(Reporter reporter, Status status) {
  if (reporter.ask == Reporter::Ask::kReport)
    reporter.reported.insert(reporter.attempt);  // it may be there
  reporter.failure = std::move(status);
  return over(std::move(reporter), Reporter::Verdict::kFailed);
}

}  // namespace deltawire::ranks
