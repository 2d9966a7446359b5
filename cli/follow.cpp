#include <fmt/format.h>

#include "base/log.h"
#include "cli/metrics.h"
#include "cli/next_step.h"
#include "cli/options.h"
#include "cli/replica_options.h"
#include "cli/step_loop.h"
#include "cli/verbs.h"
#include "replica/follow_watch.h"
#include "replica/local_state.h"
#include "serve/relay_store.h"

namespace deltawire::cli {
namespace {

struct FollowArguments {
  ReplicaVerbOptions replica;
  MetricsOptions metrics;
  ServerArguments server;
  double interval = 5;
  std::optional<uint64_t> until;
  bool once = false;
};

// Failures that a retry cannot fix: of the command line, the folder or the chain. The next attempt
// repairs damaged files, unless repair is off.
bool is_final(const Status& status, bool mends) {
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kUnsupported:
    case Code::kConflict:
    case Code::kInternal:
      return true;
    case Code::kBaseMismatch:
      return !mends;
    default:
      return false;
  }
}

// What the replica waits for, if the status is not a failure; otherwise empty.
std::string awaited(const Status& status, const FollowArguments& options) {
  if (options.once) return {};
  if (is_not_begun(status)) return "the first version";
  const bool behind =
      status.code() == Code::kNotFound && options.replica.how.accept.at_least != 0 &&
      status.message().find("but the oldest accepted version is") != std::string::npos;
  return behind ? fmt::format("version {}", options.replica.how.accept.at_least) : "";
}

class Follower {
 public:
  Follower(const Context& context, const FollowArguments& options, Notifier* notifier,
           std::shared_ptr<Store> store)
      : context_(context),
        options_(options),
        notifier_(*notifier),
        store_(std::move(store)),
        watch_(*store_) {}

  // Runs until a request to stop or until the wanted version is reached.
  Status run() {
    while (!was_interrupted()) {
      Status status = round();
      if (status.code() == Code::kCancelled && was_interrupted()) return {};
      if (const std::string what = awaited(status, options_); !what.empty()) {
        say_waiting(what);
        status = {};
      }
      if (status.ok()) {
        failures_ = 0;
        if (done()) return {};
        watch_.wait(follow_jitter(options_.interval), was_interrupted, [this] {
          if (replica_) (void)replica_->prepare_ahead();
        });
        continue;
      }
      record_failure("pull", status);
      // An engine that refused may accept later, so it is notified again.
      const bool mends = replica_ && options_.replica.how.repair;
      // The replica holds the wanted version, so only engines are left to wait for.
      if (((is_final(status, mends) || done()) && !engine_failed_) || options_.once) return status;
      const double wait = follow_backoff(failures_++, options_.interval);
      log_retry("follow.failed", status, "follow", wait);
      if (status.code() == Code::kNotFound) {
        watch_.wait(wait, was_interrupted);  // for the next manifest
      } else {
        sleep_seconds(wait);  // only time helps, not the next manifest
      }
    }
    return {};
  }

 private:
  void say_waiting(const std::string& what) {
    if (what == waits_for_) return;
    log_event(LogLevel::kInfo, "follow.waiting",
              {{"store", store_->url()}, {"reason", "waiting for " + what}});
    waits_for_ = what;
  }

  bool done() const {
    if (options_.once) return true;
    return options_.until && replica_ && replica_->state() &&
           replica_->state()->version >= *options_.until;
  }

  Status round() {
    ProgressBar bar(context_, "follow");
    progress_ = bar.callback();
    engine_failed_ = false;
    if (!replica_) {
      DW_ASSIGN_OR_RETURN(Replica opened,
                          open_replica(context_, options_.replica, store_,
                                       [this](uint64_t a, uint64_t b) { return progress_(a, b); }));
      replica_.emplace(std::move(opened));
    }
    PullGoal goal;
    goal.until = options_.until;
    DW_ASSIGN_OR_RETURN(goal.head, replica_->head());
    std::optional<uint64_t> held;
    if (replica_->state()) held = replica_->state()->version;
    record_lag(goal.head, held);
    if (!goal.head && !held) {  // nothing was published yet
      say_waiting("the first version");
      return {};
    }
    const PullOutcome outcome =
        pull_and_notify(&*replica_, &notifier_, options_.replica.copy_on_write, goal);
    if (outcome.notified) record_engines(outcome.engines);
    engine_failed_ = outcome.notified && !outcome.status.ok();
    if (outcome.report) report(outcome, goal.head);
    return outcome.status;
  }

  void report(const PullOutcome& outcome, std::optional<uint64_t> head) {
    const PullReport& pulled = *outcome.report;
    record_pull(pulled);
    record_lag(head, pulled.version);
    if (!pulled.changed && !outcome.notified && !pulled.recovered) return;
    context_.emit(pull_json(outcome));
    if (!context_.json) say_pull(context_, options_.replica, outcome);
    flush_out();
  }

  const Context& context_;
  const FollowArguments& options_;
  Notifier& notifier_;
  const std::shared_ptr<Store> store_;
  FollowWatch watch_;
  std::optional<Replica> replica_;
  Progress progress_;
  unsigned failures_ = 0;
  std::string waits_for_;       // already logged
  bool engine_failed_ = false;  // the last failure was an engine's, not the chain's or the disk's
};

// A server may start later than its replicas.
Result<std::shared_ptr<Store>> open_when_there(const FollowArguments& options) {
  for (;;) {
    Result<std::shared_ptr<Store>> store =
        open_store(options.replica.store, options.replica.store_options);
    if (store.status().code() != Code::kUnavailable || options.once) return store;
    record_failure("pull", store.status());
    log_retry("follow.failed", store.status(), "follow", 0);
    if (was_interrupted()) return cancelled("stopped on request");
  }
}

// With --serve, replaces `store` by one that others can read from as well. Null without it.
Result<std::unique_ptr<ChainServer>> start_relay(const FollowArguments& options,
                                                 std::shared_ptr<Store>* store) {
  if (options.server.address.empty()) return std::unique_ptr<ChainServer>();
  allow_all_files();
  *store = make_relay(*store, {.folder = LocalLayout{options.replica.local}.own() / "relay"});
  DW_ASSIGN_OR_RETURN(
      auto server, start_server(*store, options.server, options.replica.store_options.token_file));
  log_event(LogLevel::kInfo, "serve.listening",
            {{"url", server->url()}, {"store", (*store)->url()}});
  return server;
}

int follow(const Context& context, const FollowArguments& options) {
  start_log(options.replica.log);
  Result<Notifier> notifier = make_notifier(options.replica.notify);
  if (!notifier.ok()) return context.fail(notifier.status());
  const auto metrics_server = start_metrics(options.metrics);
  if (!metrics_server.ok()) return context.fail(metrics_server.status());
  Result<std::shared_ptr<Store>> store = open_when_there(options);
  if (!store.ok() && was_interrupted()) return context.succeed();
  if (!store.ok()) return context.fail(store.status());
  Result<std::unique_ptr<ChainServer>> server = start_relay(options, &*store);
  if (!server.ok()) return context.fail(server.status());
  return context.finish(Follower(context, options, &*notifier, std::move(*store)).run());
}

}  // namespace

void add_follow(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "follow", "Keep a local checkpoint at the newest version of a chain",
                "  deltawire follow /shared/run ckpt/\n"
                "  deltawire follow s3://bucket/run ckpt/ --interval 10 --metrics-port 9400\n"
                "  deltawire follow http://trainer:8410 ckpt/ --token-file token\n"
                "  deltawire follow http://trainer:8410 ckpt/ --token-file token --serve "
                "10.0.0.2:8410\n"
                "  deltawire follow s3://bucket/run ckpt/ --notify vllm=http://127.0.0.1:8000\n"
                "With --json, one object per version. Ends on SIGINT or SIGTERM. During an outage "
                "of the store it waits.");
  auto* const options = set_call(verb, context, call, follow);
  add_seconds(verb, "--interval", &options->interval,
              "polling interval, varied by up to a fifth (default 5); in a "
              "local folder, or at http://, a new version is seen at once",
              0.01, 86400);
  add_version(verb, "--until", &options->until, "stop at this version and end");
  verb->add_flag("--once", options->once, "check once and end");
  add_replica_options(verb, context, &options->replica, LogLevel::kInfo)->required();
  add_server_options(
      verb, "--serve",
      "relay the chain over HTTP: others follow http://HOST:PORT and read what was fetched",
      &options->server);
  add_metrics_options(verb, &options->metrics);
}

}  // namespace deltawire::cli
