// What `pull` and `follow` share: their options, and one step from a version to the next with the
// engines told about it.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/context.h"
#include "cli/log_options.h"
#include "cli/notify_options.h"
#include "deltawire/replica.h"
#include "deltawire/store.h"

namespace deltawire::cli {

struct ReplicaVerbOptions {
  std::string store, local;
  StoreOptions store_options;
  bool copy_on_write = false, no_repair = false, verify = false, no_heartbeat = false;
  unsigned keep_versions = CopyOnWrite().keep;
  std::string trust, run, name;
  std::optional<uint64_t> at_least;
  NotifyOptions notify;
  LogOptions log;
};

void add_replica_options(Command* verb, Context& context, ReplicaVerbOptions* options,
                         LogLevel usual);
Result<Replica> open_replica(const Context& context, const ReplicaVerbOptions& options,
                             std::shared_ptr<Store> store, Progress progress);

// What came of one step. `status` is the first failure: of the pull, else of an engine.
struct PullOutcome {
  Status status;
  std::optional<PullReport> report;  // none: the pull failed
  NotifyOutcome engines;
  bool told = false;     // engines were called
  bool resumed = false;  // it was a step that an earlier process had begun
};

// Prepares while engines serve; then pause, commit, reload, resume. Engines that do not serve what
// the checkpoint holds are told again when there is nothing new.
PullOutcome pull_and_notify(Replica* replica, Notifier* notifier, bool copy_on_write,
                            const PullGoal& goal);

// Both print the report; `say` for people, the JSON for machines.
void say_pull(const Context& context, const ReplicaVerbOptions& options,
              const PullOutcome& outcome);
nlohmann::ordered_json pull_json(const PullOutcome& outcome);

}  // namespace deltawire::cli
