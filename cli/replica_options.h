// What `pull` and `follow` share: their options, the engines to notify, and one step to the next
// version.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/context.h"
#include "cli/options.h"
#include "deltawire/replica.h"
#include "deltawire/status.h"
#include "deltawire/store.h"
#include "notify/notifier.h"

namespace deltawire::cli {

struct NotifyOptions {
  std::vector<std::string> notify, exec;
  CallLimits limits;
};

void add_notify_options(Command* verb, NotifyOptions* options);
// Without options: a notifier without engines.
Result<Notifier> make_notifier(const NotifyOptions& options);

// [{"engine":"sglang=http://...","serving":12,"reloaded":true,"resumed":true, ...}, ...]
Json to_json(const std::vector<EngineOutcome>& engines);
// One line per engine: "engine    sglang=http://...: serves version 12"
void say_engines(const Context& context, const std::vector<EngineOutcome>& engines);

struct ReplicaVerbOptions {
  std::string store, local;
  StoreOptions store_options;
  bool copy_on_write = false;
  unsigned keep_versions = CopyOnWrite().keep;
  ReplicaOptions how;
  NotifyOptions notify;
  LogOptions log;
};

// Returns LOCAL, which is not required.
Option* add_replica_options(Command* verb, Context& context, ReplicaVerbOptions* options,
                            LogLevel usual);
Result<Replica> open_replica(const Context& context, const ReplicaVerbOptions& options,
                             std::shared_ptr<Store> store, Progress progress);

// The result of one step. `status` is the first failure, of the pull or of an engine.
struct PullOutcome {
  Status status;
  std::optional<PullReport> report;  // none: the pull failed
  NotifyOutcome engines;
  bool notified = false;  // engines were called
  bool resumed = false;   // completed a step that an earlier process had begun
};

// Prepares while engines serve, then pauses them, commits, reloads and resumes. If there is nothing
// new, engines that do not serve the checkpoint's version are notified again.
PullOutcome pull_and_notify(Replica* replica, Notifier* notifier, bool copy_on_write,
                            const PullGoal& goal);

// Both print the report; `say` for people, the JSON for machines.
void say_pull(const Context& context, const ReplicaVerbOptions& options,
              const PullOutcome& outcome);
Json pull_json(const PullOutcome& outcome);

}  // namespace deltawire::cli
