// The common part of all replicas: reads a chain, holds a version and prepares the next one. For
// files see impl.h, for tensors tensor_replica_impl.h.
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
  std::string place;  // names the replica in the log
  bool repair = true;
  uint64_t at_least = 0;
  Progress progress;
};

inline constexpr uint64_t kAheadShare = 8;  // share of the memory limit for tensors decoded early

class ReplicaBase {
 public:
  virtual ~ReplicaBase() = default;
  ReplicaBase(const ReplicaBase&) = delete;
  ReplicaBase& operator=(const ReplicaBase&) = delete;

  // The chain's newest version.
  virtual Result<std::optional<uint64_t>> head() = 0;

  // Decodes what was sent ahead of the version after the held one, whether or not it is committed.
  // Returns the number of tensors.
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

  // The first half of a pull: finds the head, determines what is held, and catches up. Starts from
  // nothing if what is held cannot be used. commit() writes the result.
  Result<PullReport> prepare_pull(PullGoal goal);
  Result<std::optional<uint64_t>> find_head(const std::optional<uint64_t>& known);

 private:
  // Whether recognise() needs the head even if the goal names a version.
  virtual bool is_lost() const { return false; }
  // Determines what is held, if that is unknown and possible.
  virtual Status recognise(const PullGoal& goal, PullReport* report, PhaseClock* clock) = 0;
  // None if no version is held.
  virtual Result<std::optional<Held>> held_version() const = 0;
  // The last held version: the target must not be older and must share its history.
  virtual Result<std::optional<Held>> bound_to() const { return held_version(); }
  // BaseMismatch if what is held cannot be used, or if nothing is held and repair is off.
  virtual Status check_usable(uint64_t wanted, PullReport* report) = 0;
  // The tensors to decode from; empty if early decoding is not possible.
  virtual Result<HeldNow> held_now() const = 0;
  virtual std::unique_ptr<CatchUpSink> make_sink(Attempt* attempt) = 0;
  // Called after a failure: drops what was staged.
  virtual void abandon() = 0;
  // Called after success: completes the report, sets `changed` if commit() has work to do, and
  // keeps a copy for commit().
  virtual void keep_report(PullReport* report) = 0;

  Status attempt(const AttemptGoal& goal, const std::optional<Held>& held, PullReport* report,
                 PhaseClock* clock);
  Status start_again(const AttemptGoal& goal, PullReport* report, PhaseClock* clock);

  uint64_t num_ahead(const SentObject& object, std::optional<HeldNow>* held);

  const PullRules rules_;
  uint64_t seen_ahead_ = 0;            // the last object that was sent ahead and processed
  std::optional<VersionRecord> seen_;  // read while looking for the head
};

}  // namespace deltawire
