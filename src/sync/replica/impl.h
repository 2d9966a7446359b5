// What a Replica is made of. replica.cpp has the local transaction: open, recover, commit;
// prepare.cpp everything that leads to it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "chain/chain.h"
#include "chain/plan.h"
#include "deltawire/replica.h"
#include "sync/replica/beat.h"
#include "sync/replica/forward.h"
#include "sync/replica/journal.h"
#include "sync/replica/local_layout.h"
#include "sync/replica/local_lock.h"
#include "sync/replica/local_state.h"
#include "sync/replica/phase_clock.h"
#include "sync/replica/tensors.h"

namespace deltawire {

struct ReplicaCore {
  std::shared_ptr<Store> store;
  LocalLayout layout;
  ReplicaOptions options;
  ThreadPool pool;
  std::optional<LocalLock> lock;
  std::optional<Chain> chain;
  std::unique_ptr<ReplicaBeat> beat;

  std::optional<LocalState> state;    // as in state.json
  std::optional<ReplicaState> shown;  // the same for callers
  bool recovered = false;             // an earlier process's step was finished; not yet reported
  std::string damage;                 // why the checkpoint cannot be what the state says
  bool state_lost = false;            // the damage is that of state.json alone

  // What prepare() left in journal.new/.
  struct Pending {
    JournalRecord record;
    std::optional<OpenPatch> patch;
    std::map<std::string, FileStamp> stamps;  // of the files that it patches, when they were read
    PullReport report;
  };
  std::optional<Pending> pending;

  // What commit() has patched and settle() has yet to record.
  struct Unsettled {
    JournalRecord record;
    std::optional<PatchedFiles> files;
    std::map<std::string, HeldSide> sides;
    double seconds = 0;  // since prepare() began, when commit() was done
    std::chrono::steady_clock::time_point committed;
  };
  std::optional<Unsettled> unsettled;

  // A version's record that was read while looking for the head.
  std::optional<VersionRecord> seen;

  ReplicaCore(std::shared_ptr<Store> the_store, std::filesystem::path local,
              ReplicaOptions the_options)
      : store(std::move(the_store)),
        layout{std::move(local)},
        options(std::move(the_options)),
        pool(options.threads) {}
  ~ReplicaCore();

  // replica.cpp
  Status open();
  Status recover();
  Status finish_journal();
  struct CarriedOut {
    std::optional<PatchedFiles> files;
    std::vector<std::string> set_aside;
  };
  Result<CarriedOut> carry_out(const JournalRecord& record, const OpenPatch* patch);
  Status record_version(const JournalRecord& record, std::map<std::string, HeldSide> sides);
  Status drop_journal();
  Status save(LocalState next);
  Result<PullReport> commit();
  Status settle(PullReport* report);
  Result<std::optional<uint64_t>> head();
  void remove_old_versions() const;

  // prepare.cpp
  Result<PullReport> prepare(PullGoal goal);
  Status recover_lost_state(uint64_t newest, PullReport* report);
  Result<Held> held() const;  // with a state
  Status start_again(uint64_t version, bool named, PullReport* report, PhaseClock* clock);
  Status attempt(const AttemptGoal& goal, PullReport* report, PhaseClock* clock);
};

struct Replica::Impl : ReplicaCore {
  using ReplicaCore::ReplicaCore;
};

}  // namespace deltawire
