// How ranks of a sharded trainer agree on a version with nothing but the store between them.
//
// Rank 0 announces an attempt; every other rank puts what it has to say about it; rank 0 commits
// when all have, or says why not. A version is committed by its manifest like any other, so
// whatever happens to a rank there is a whole version or none.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "deltawire/publisher.h"
#include "sync/publisher/ranks_record.h"

namespace deltawire {

// What another rank than 0 learns while it waits.
struct RankEvent {
  std::string attempt;
  std::optional<RankBegin> begin;          // a new attempt
  std::optional<VersionRecord> committed;  // the version is there
  std::optional<RankDone> done;            // the attempt made none
};

class RankExchange {
 public:
  RankExchange(const Chain& chain, uint64_t version, const PublishOptions& options)
      : chain_(chain), version_(version), options_(options) {}

  // ---- rank 0

  // Takes away what earlier attempts left, then says that there is a new one.
  Status announce(const RankBegin& begin);
  // The reports of all ranks but 0, by rank. Unavailable, naming the ranks that are missing, when
  // the time is over; the failure of a rank that reports one.
  Result<std::vector<RankReport>> collect(const RankBegin& begin);
  // Says that an attempt has ended without a version. As far as possible: ranks have time-outs.
  void end(const RankBegin& begin, const RankDone& done);
  // After the commit: nothing of this version is pending any more.
  void clean_up();

  // ---- other ranks

  Status report(const RankBegin& begin, const RankReport& report);
  // Waits for what comes after `current` (empty: for the first attempt, or the end of one that
  // failed too soon to be joined). Attempts in `past` are those of earlier publishes.
  Result<RankEvent> wait(const std::string& current, const std::set<std::string>& past);
  // Attempts at this version that are known to have made none.
  Result<std::set<std::string>> ended_attempts() const;

 private:
  Result<std::optional<RankReport>> read_report(const RankBegin& begin, unsigned rank) const;
  Result<std::optional<RankBegin>> read_begin(const std::set<std::string>& past) const;
  Result<std::optional<RankDone>> read_done(const std::string& attempt) const;
  void remove_pending(const std::function<bool(std::string_view name)>& which);
  Result<std::optional<RankEvent>> missed_failure(std::string_view announced,
                                                  const std::set<std::string>& past) const;
  Result<std::optional<RankEvent>> look(const std::string& current,
                                        const std::set<std::string>& past) const;

  const Chain& chain_;
  const uint64_t version_;
  const PublishOptions& options_;
};

// Asks `done` again and again, at growing intervals, until it says true, fails, or `seconds` have
// passed: false. Cancelled when the options' progress says so.
Result<bool> poll_until(const PublishOptions& options, double seconds,
                        const std::function<Result<bool>()>& done);

}  // namespace deltawire
