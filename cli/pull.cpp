#include <fmt/format.h>

#include "cli/options.h"
#include "cli/replica_options.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

struct PullArguments {
  ReplicaVerbOptions replica;
  std::optional<uint64_t> version;
};

int pull(const Context& context, const PullArguments& options) {
  start_log(options.replica.log);
  Result<Notifier> notifier = make_notifier(options.replica.notify);
  if (!notifier.ok()) return context.fail(notifier.status());
  const auto run = [&]() -> PullOutcome {
    ProgressBar bar(context, "pull");
    Result<std::shared_ptr<Store>> store =
        open_store(options.replica.store, options.replica.store_options);
    if (!store.ok()) return {store.status(), {}, {}, false};
    Result<Replica> replica =
        open_replica(context, options.replica, std::move(*store), bar.callback());
    if (!replica.ok()) return {replica.status(), {}, {}, false};
    return pull_and_notify(&*replica, &*notifier, options.replica.copy_on_write, options.version);
  };
  const PullOutcome outcome = run();
  if (!outcome.report) {
    say_engines(context, outcome.engines.engines);
    return context.fail(outcome.status);
  }
  say_pull(context, options.replica, outcome);
  if (!outcome.status.ok()) return context.fail(outcome.status);
  context.emit(pull_json(outcome));
  return context.succeed();
}

}  // namespace

void add_pull(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "pull", "Bring a local checkpoint to a version of a chain",
                "  deltawire pull /shared/run ckpt/\n"
                "  deltawire pull s3://bucket/run ckpt/ --version 12\n"
                "  deltawire pull s3://bucket/run ckpt/ --notify sglang=http://127.0.0.1:30000");
  auto options = std::make_shared<PullArguments>();
  add_version(verb, "--version", &options->version,
              "go to this version, even if it is older (default: the newest, never back)");
  add_replica_options(verb, context, &options->replica, LogLevel::kWarning);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return pull(context, *options); };
  });
}

}  // namespace deltawire::cli
