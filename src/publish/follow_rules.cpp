// What all ranks but 0 do. rank_rules.h has the rules in words.
#include "publish/rank_rules.h"

namespace deltawire::ranks {
namespace {

Follower asking(Follower follower, Follower::Ask ask) {
  follower.ask = ask;
  return follower;
}

Follower asking_end(Follower follower, std::string attempt) {
  follower.about = std::move(attempt);
  return asking(std::move(follower), Follower::Ask::kReadEnd);
}

Follower over(Follower follower, Follower::Verdict verdict) {
  follower.verdict = verdict;
  return asking(std::move(follower), Follower::Ask::kOver);
}

std::string steps_differ(const Follower& follower) {
  return "rank 0 publishes step " + std::to_string(follower.seen->step) + ", rank " +
         std::to_string(follower.rank) + " step " + std::to_string(follower.step);
}

// What the end of an attempt of this step means for a publish that is, or could have been, in it.
Follower take_end(Follower follower, const EndSeen& end) {
  if (end.ending == Ending::kUnchanged) {
    if (end.heard_us) return over(std::move(follower), Follower::Verdict::kUnchanged);
    const std::string rank = std::to_string(follower.rank);
    return failed(std::move(follower),
                  cancelled("rank 0 found nothing changed, by what another process of rank " +
                            rank + " had reported"));
  }
  Status status =
      cancelled("rank 0 gave up version " + std::to_string(follower.version) + ": " + end.why);
  return failed(std::move(follower), std::move(status));
}

// An attempt that was announced, and not joined, and has not ended.
Follower consider(Follower follower) {
  if (follower.seen->step != follower.step)
    return asking(std::move(follower), Follower::Ask::kPause);
  follower.attempt = follower.seen->id;
  follower.full = follower.seen->full;
  return asking(std::move(follower), Follower::Ask::kReport);
}

// This rank has reported to an attempt that has not ended, as far as it can see.
Follower go_on(Follower follower) {
  const std::optional<AttemptSeen> seen = follower.seen;
  if (!seen || (seen->id != follower.attempt && seen->step < follower.step)) {
    return asking(std::move(follower), Follower::Ask::kPause);
  }
  if (seen->id == follower.attempt) {
    if (!seen->full || follower.full) return asking(std::move(follower), Follower::Ask::kPause);
    follower.full = true;  // a delta turned out not to do
    return asking(std::move(follower), Follower::Ask::kReport);
  }
  // Rank 0 has gone on, so there is an end, which this rank does not see.
  if (seen->step > follower.step) return asking(std::move(follower), Follower::Ask::kFindEnd);
  follower.attempt.clear();
  return asking_end(std::move(follower), seen->id);
}

}  // namespace

Follower start_following(uint64_t version, uint64_t step, unsigned rank,
                         std::optional<Follower::Before> before, std::set<std::string> reported) {
  Follower follower;
  follower.version = version;
  follower.step = step;
  follower.rank = rank;
  follower.before = std::move(before);
  follower.reported = std::move(reported);
  return follower;
}

// The order of the questions matters: an attempt's end is put before the next one is announced, so
// whoever sees the next and then asks for the end of the first finds it.
Follower read_begin(Follower follower, const std::optional<AttemptSeen>& seen) {
  const auto& before = follower.before;
  const bool of_others = seen && before && before->over && before->attempt == seen->id;
  follower.seen = of_others ? std::nullopt : seen;
  return asking(std::move(follower), Follower::Ask::kReadManifest);
}

Follower read_manifest(Follower follower, const std::optional<std::string>& attempt) {
  const std::string own = follower.attempt;
  if (attempt) {
    if (!own.empty() && *attempt == own) {
      return over(std::move(follower), Follower::Verdict::kCommitted);
    }
    if (own.empty() && follower.reported.contains(*attempt)) {
      return over(std::move(follower), Follower::Verdict::kMoved);
    }
    const std::string version = std::to_string(follower.version);
    return failed(std::move(follower),
                  conflict("version " + version + " was published by another"));
  }
  if (!own.empty()) return asking_end(std::move(follower), own);
  const std::optional<AttemptSeen> seen = follower.seen;
  if (!seen || seen->step < follower.step)
    return asking(std::move(follower), Follower::Ask::kPause);
  // What was announced before this process came may be dead; what came since is alive.
  const bool alive = !follower.before || follower.before->attempt != seen->id;
  if (alive && seen->step > follower.step)
    return asking(std::move(follower), Follower::Ask::kFindEnd);
  return asking_end(std::move(follower), seen->id);
}

Follower read_end(Follower follower, const std::optional<EndSeen>& end) {
  const bool joined = follower.about == follower.attempt;
  if (!end) return joined ? go_on(std::move(follower)) : consider(std::move(follower));
  if (end->ending == Ending::kSuperseded) {
    if (!joined) return asking(std::move(follower), Follower::Ask::kPause);
    follower.attempt.clear();
    return asking(std::move(follower), Follower::Ask::kReadBegin);
  }
  if (!joined && follower.seen->step != follower.step)
    return asking(std::move(follower), Follower::Ask::kFindEnd);
  return take_end(std::move(follower), *end);
}

// Rank 0 has gone on to a later step: this publish is over, and may hear why.
Follower found_end(Follower follower, const std::optional<EndSeen>& end) {
  if (end && end->ending == Ending::kFailed) return take_end(std::move(follower), *end);
  Status status = cancelled(steps_differ(follower) + ", which rank 0 has given up");
  return failed(std::move(follower), std::move(status));
}

Follower reported(Follower follower) {
  follower.reported.insert(follower.attempt);
  return asking(std::move(follower), Follower::Ask::kPause);
}

Follower paused(Follower follower, Pause how, double seconds) {
  if (how == Pause::kStopped) return failed(std::move(follower), cancelled("stopped on request"));
  if (how == Pause::kGoOn) return asking(std::move(follower), Follower::Ask::kReadBegin);
  const std::string within = " within " + std::to_string(int64_t(seconds + 0.5)) + " s";
  const bool mismatch = follower.seen && follower.seen->step != follower.step;
  Status status = unavailable(
      mismatch ? steps_differ(follower) +
                     ": ranks that are not told the step count their publishes, so that all must "
                     "be opened anew together"
               : "rank " + std::to_string(follower.rank) + ": rank 0 has not " +
                     (follower.attempt.empty() ? "announced" : "committed") + " version " +
                     std::to_string(follower.version) + within);
  return failed(std::move(follower), std::move(status));
}

Follower failed(Follower follower, Status status) {
  if (follower.ask == Follower::Ask::kReport)
    follower.reported.insert(follower.attempt);  // it may be there
  follower.failure = std::move(status);
  return over(std::move(follower), Follower::Verdict::kFailed);
}

}  // namespace deltawire::ranks
