#include <fmt/format.h>

#include "cli/options.h"
#include "cli/replica_options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

struct PullArguments {
  ReplicaVerbOptions replica;
  std::optional<uint64_t> version, from;
  bool dry_run = false;
};

// ---- --dry-run: what a pull would fetch

// The version that a plan begins with: --from, else what LOCAL holds of this run.
Result<std::optional<uint64_t>> held_version(const PullArguments& options, const Chain& chain) {
  if (options.from || options.replica.local.empty()) return options.from;
  const Result<ReplicaState> state = read_replica_state(options.replica.local);
  if (!state.ok() && state.status().code() == Code::kNotFound) return options.from;
  if (!state.ok()) return state.status();
  if (state->run == chain.run()) return std::optional(state->version);
  return base_mismatch(fmt::format("{}: belongs to run {}, {} holds run {}", options.replica.local,
                                   state->run, chain.store().url(), chain.run()));
}

void say_plan(const Context& context, std::optional<uint64_t> held, const Plan& plan) {
  const uint64_t to = plan.target.manifest.version;
  const std::string from = held ? fmt::format("version {}", *held) : "nothing";
  if (plan.hops.empty()) {
    context.print("from {} to version {}: nothing to do", from, to);
    return;
  }
  Table table({{"hop", false}, {"from"}, {"to"}, {"parts"}, {"bytes"}});
  for (const Hop& hop : plan.hops) {
    table.add({std::string(hop_kind_name(hop.kind)), hop.base ? std::to_string(*hop.base) : "-",
               std::to_string(hop.version), human_count(hop.parts.size()),
               human_bytes(double(hop.bytes))});
  }
  table.say(context);
  context.print("from {} to version {}: {}, {}; every single version would be {}", from, to,
                plural(plan.hops.size(), "hop"), human_bytes(double(plan.bytes)),
                human_bytes(double(plan.all_deltas_bytes)));
  for (const std::string& note : plan.notes) context.say("skipped: " + escape_controls(note));
}

Json plan_json(std::optional<uint64_t> held, const Plan& plan) {
  Json hops = Json::array();
  for (const Hop& hop : plan.hops) {
    hops.push_back({{"kind", hop_kind_name(hop.kind)},
                    {"from", or_null(hop.base)},
                    {"to", hop.version},
                    {"bytes", hop.bytes},
                    {"parts", parts_json(hop.parts)}});
  }
  return {{"from", or_null(held)},
          {"to", plan.target.manifest.version},
          {"bytes", plan.bytes},
          {"all_deltas_bytes", plan.all_deltas_bytes},
          {"anchor_bytes", plan.anchor_bytes},
          {"hops", std::move(hops)},
          {"notes", plan.notes}};
}

Status show_plan(const Context& context, const PullArguments& options) {
  const ReplicaVerbOptions& replica = options.replica;
  DW_ASSIGN_OR_RETURN(const Chain chain,
                      open_chain({replica.store, replica.how.accept.trust, replica.store_options}));
  DW_ASSIGN_OR_RETURN(const auto held, held_version(options, chain));
  DW_ASSIGN_OR_RETURN(const Plan plan, chain.plan(held, options.version));
  say_plan(context, held, plan);
  context.emit(plan_json(held, plan));
  return {};
}

// ---- the pull itself

int pull(const Context& context, const PullArguments& options) {
  start_log(options.replica.log);
  if (options.dry_run) return context.finish(show_plan(context, options));
  if (options.replica.local.empty()) {
    return context.fail(invalid_argument("LOCAL is required; see deltawire pull --help"));
  }
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
                "  deltawire pull s3://bucket/run ckpt/ --notify sglang=http://127.0.0.1:30000\n"
                "  deltawire pull s3://bucket/run ckpt/ --dry-run    what it would fetch\n"
                "  deltawire pull s3://bucket/run --dry-run --from 12 --version 40");
  auto* const options = set_call(verb, context, call, pull);
  add_version(verb, "--version", &options->version,
              "go to this version, even if it is older (default: the newest, never back)");
  Option* const dry_run = verb->add_flag("--dry-run", options->dry_run,
                                         "only show what would be fetched; LOCAL may be left out");
  add_version(verb, "--from", &options->from,
              "with --dry-run: plan as if LOCAL held this version (default: what it holds)")
      ->needs(dry_run);
  add_replica_options(verb, context, &options->replica, LogLevel::kWarning);
}

}  // namespace deltawire::cli
