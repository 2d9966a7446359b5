// What replicas of every kind are: somebody who reads a chain, holds a version of it, and gets the
// next one ready. Files: impl.h; tensors: tensor_replica_impl.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "chain/chain.h"
#include "chain/plan.h"
#include "deltawire/replica.h"
#include "replica/ahead.h"
#include "replica/beat.h"
#include "replica/catch_up.h"
#include "replica/pull_progress.h"
#include "store/push_source.h"

namespace deltawire {

struct PullRules {
  std::string place;  // of the replica, for the log
  bool repair = true;
  uint64_t at_least = 0;
  Progress progress;
};

inline constexpr uint64_t kAheadShare = 8;  // of a replica's memory, for what was decoded ahead

class ReplicaBase {
 public:
  virtual ~ReplicaBase() = default;
  ReplicaBase(const ReplicaBase&) = delete;
  ReplicaBase& operator=(const ReplicaBase&) = delete;

  // The chain's newest version.
  virtual Result<std::optional<uint64_t>> head() = 0;

  // Decodes what has been sent here of the version after the one that is held, committed or not.
  // Returns how many tensors it was.
  uint64_t prepare_ahead();

  const std::shared_ptr<Store> store;
  ThreadPool pool;
  Ahead ahead;
  std::optional<Chain> chain;
  std::unique_ptr<ReplicaBeat> beat;

 protected:
  ReplicaBase(std::shared_ptr<Store> the_store, PullRules rules, const Limits& limits)
      : store(std::move(the_store)),
        pool(limits.threads),
        ahead(limits.memory_bytes / kAheadShare),
        rules_(std::move(rules)) {}

  // The first half of a pull: looks where the chain is, what is held and whether it can be used,
  // and catches up; begins with nothing where what is held is not what it should be. What it leaves
  // is commit()'s to write.
  Result<PullReport> prepare_pull(PullGoal goal);
  Result<std::optional<uint64_t>> find_head(const std::optional<uint64_t>& known);

 private:
  // Whether recognise() needs to know the head even when the goal names a version.
  virtual bool is_lost() const { return false; }
  // Finds out what is held, if that is not known and can be found out.
  virtual Status recognise(const PullGoal& goal, PullReport* report, PhaseClock* clock) = 0;
  // None: no version.
  virtual Result<std::optional<Held>> held_version() const = 0;
  // The version held last: what comes is no older, and of its history.
  virtual Result<std::optional<Held>> bound_to() const { return held_version(); }
  // BaseMismatch: what is held cannot be used, or nothing is and that is not to be repaired.
  virtual Status check_usable(uint64_t wanted, PullReport* report) = 0;
  // What it is decoded from; without tensors where nothing can be.
  virtual Result<HeldNow> held_now() const = 0;
  virtual std::unique_ptr<CatchUpSink> make_sink(Attempt* attempt) = 0;
  // After a failure: nothing is ready, and what was made for it goes.
  virtual void abandon() = 0;
  // After success: completes the report, says in `changed` whether commit() has anything to do, and
  // keeps a copy for it.
  virtual void keep_report(PullReport* report) = 0;

  Status attempt(const AttemptGoal& goal, const std::optional<Held>& held, PullReport* report,
                 PhaseClock* clock);
  Status start_again(const AttemptGoal& goal, PullReport* report, PhaseClock* clock);

  uint64_t num_ahead(const SentObject& object, std::optional<HeldNow>* held);

  const PullRules rules_;
  uint64_t seen_ahead_ = 0;            // the last object that was sent ahead and looked at
  std::optional<VersionRecord> seen_;  // was read while looking for the head
};

}  // namespace deltawire
