#include "cli/replica_options.h"

#include <fmt/format.h>

#include <cstdlib>

#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "format/record.h"

namespace deltawire::cli {

void add_notify_options(Command* verb, NotifyOptions* options) {
  verb->add_option("--notify", options->notify,
                   "pause, reload and resume an engine: sglang=URL or vllm=URL; may be repeated. "
                   "A key comes from DELTAWIRE_ENGINE_API_KEY")
      ->type_name("KIND=URL")
      ->repeatable();
  verb->add_option("--exec", options->exec,
                   "run a shell command for each new version, with DELTAWIRE_VERSION, _RUN, _PATH "
                   "and _PHASE in its environment; may be repeated")
      ->type_name("COMMAND")
      ->repeatable();
  CallLimits* const limits = &options->limits;
  add_seconds(verb, "--notify-timeout", &limits->timeout_seconds,
              fmt::format("limit of one call of an engine or of one command (default {:g})",
                          limits->timeout_seconds),
              0.001, 86400);
  add_whole_number(
      verb, "--notify-retries", &limits->retries,
      fmt::format("further attempts after no connection, no answer or status 5xx (default "
                  "{})",
                  limits->retries),
      0, 100);
}

Result<Notifier> make_notifier(const NotifyOptions& options) {
  EngineOptions calls;
  calls.limits = options.limits;
  calls.cancelled = was_interrupted;
  if (const char* key = std::getenv("DELTAWIRE_ENGINE_API_KEY")) calls.api_key = Secret(key);
  std::vector<std::string> specs = options.notify;
  for (const std::string& command : options.exec) specs.push_back("exec=" + command);
  Notifier notifier(was_interrupted);
  for (const std::string& spec : specs) {
    DW_ASSIGN_OR_RETURN(auto engine, make_engine(spec, calls));
    notifier.add(std::move(engine));
  }
  return notifier;
}

Json to_json(const std::vector<EngineOutcome>& engines) {
  auto list = Json::array();
  for (const EngineOutcome& engine : engines) {
    Json one = {{"engine", engine.engine}, {"serving", nullptr}};
    if (engine.serving) one["serving"] = engine.serving->version;
    one["paused"] = engine.paused;
    one["reloaded"] = engine.reloaded;
    one["resumed"] = engine.resumed;
    one["reload_seconds"] = engine.reload_seconds;
    one["warnings"] = engine.warnings;
    if (!engine.status.ok()) {
      one["error"] = {{"code", code_name(engine.status.code())},
                      {"message", engine.status.message()}};
    }
    list.push_back(std::move(one));
  }
  return list;
}

void say_engines(const Context& context, const std::vector<EngineOutcome>& engines) {
  for (const EngineOutcome& engine : engines) {
    const std::string serves = engine.serving
                                   ? fmt::format("serves version {}", engine.serving->version)
                                   : "which version it serves is not known";
    context.print("engine    {}: {}{}", engine.engine, serves,
                  engine.resumed ? "" : "; it may still be paused");
    for (const std::string& warning : engine.warnings) context.say("          " + warning);
  }
}

namespace {

std::string from_to(const PullReport& report) {
  return fmt::format("{} -> {}", report.from ? std::to_string(*report.from) : "nothing",
                     report.version);
}

}  // namespace

Option* add_replica_options(Command* verb, Context& context, ReplicaVerbOptions* options,
                            LogLevel usual) {
  verb->add_option("STORE", options->store, "s3://BUCKET/PREFIX, http://HOST:PORT, or a folder")
      ->required();
  Option* const local = verb->add_option("LOCAL", options->local,
                                         "the folder of the local checkpoint; created if missing");
  verb->add_flag("--copy-on-write", options->copy_on_write,
                 "a folder per version, LOCAL/v0000000012, and a link LOCAL/current, for engines "
                 "that map their files");
  add_whole_number(verb, "--keep-versions", &options->keep_versions,
                   "older versions that --copy-on-write keeps (default 2)", 0, 1000);
  verb->add_flag("!--no-repair", options->how.repair,
                 "fail if local files were changed or damaged; default: fetch them again");
  verb->add_flag("--verify", options->how.verify_all,
                 "hash all tensors first, not only those that change");
  verb->add_option("--trust", options->how.accept.trust,
                   "public keys; refuse versions that none of them signed");
  verb->add_option("--run", options->how.accept.run,
                   "the run's id; refuse a store that holds another run (default: any)");
  add_version(verb, "--at-least", &options->how.accept.at_least,
              "refuse versions below this one; follow waits for it");
  verb->add_option(
      "--name", options->how.name,
      "name of this replica in `status STORE` (default: host, path and an id of LOCAL)");
  verb->add_flag("!--no-heartbeat", options->how.heartbeat, "write no heartbeat to the store");
  add_notify_options(verb, &options->notify);
  add_threads(verb, context);
  add_store_options(verb, &options->store_options);
  add_log_options(verb, &options->log, usual);
  return local;
}

Result<Replica> open_replica(const Context& context, const ReplicaVerbOptions& options,
                             std::shared_ptr<Store> store, Progress progress) {
  ReplicaOptions how = options.how;
  how.limits.threads = context.threads;
  if (options.copy_on_write) how.copy_on_write = CopyOnWrite{options.keep_versions};
  how.progress = std::move(progress);
  return Replica::open(std::move(store), options.local, std::move(how));
}

namespace {

PullOutcome pull_once(Replica* replica, Notifier* notifier, bool copy_on_write,
                      const PullGoal& goal) {
  PullOutcome outcome;
  Result<PullReport> prepared = replica->prepare(goal);
  if (!prepared.ok()) {
    outcome.status = prepared.status();
    return outcome;
  }
  outcome.resumed = prepared->recovered;
  const std::optional<ReplicaState>& state = replica->state();
  // Engines that were not called before may serve anything.
  const std::string engines = record_digest(notifier->names()).hex();  // commands hold secrets
  std::optional<Identity> serving;
  if (state && state->engines == engines) serving = state->serving;
  const bool behind = !notifier->empty() && state && serving != std::optional<Identity>(*state);
  if (!prepared->changed && !behind) {
    outcome.report = *prepared;
    return outcome;
  }
  Change change;
  static_cast<Identity&>(change) = *prepared;
  if (state) change.from = state->version;
  change.serving = serving;
  change.in_place = prepared->changed && state && !copy_on_write;
  const auto patch = [&]() -> Result<std::filesystem::path> {
    if (prepared->changed) {
      DW_ASSIGN_OR_RETURN(outcome.report, replica->commit());
    } else {
      outcome.report = *prepared;
    }
    return std::filesystem::absolute(outcome.report->path);
  };
  outcome.engines = notifier->around(change, patch);
  outcome.notified = !notifier->empty();
  outcome.status = outcome.engines.status();
  Status settled;
  if (outcome.report) settled = replica->settle(&*outcome.report);  // while the engine serves again
  if (outcome.status.ok()) outcome.status = settled;
  if (!settled.ok()) {  // files changed while engines loaded them: what they serve is unknown
    for (EngineOutcome& engine : outcome.engines.engines) engine.serving.reset();
  }
  if (outcome.notified && replica->state()) {
    const Status noted = replica->set_serving(outcome.engines.serving(), {}, engines);
    if (outcome.status.ok()) outcome.status = noted;
  }
  if (!settled.ok()) outcome.report.reset();
  return outcome;
}

}  // namespace

PullOutcome pull_and_notify(Replica* replica, Notifier* notifier, bool copy_on_write,
                            const PullGoal& goal) {
  PullOutcome first = pull_once(replica, notifier, copy_on_write, goal);
  // A step that an earlier process had begun is finished now or cannot be; continue from there.
  const bool over = first.status.ok() || first.status.code() == Code::kBaseMismatch;
  if (!first.resumed || !over) return first;
  PullOutcome rest = pull_once(replica, notifier, copy_on_write, goal);
  if (rest.report) rest.report->recovered = true;
  if (!rest.notified) {
    rest.engines = std::move(first.engines);
    rest.notified = first.notified;
  }
  return rest;
}

void say_pull(const Context& context, const ReplicaVerbOptions& options,
              const PullOutcome& outcome) {
  const PullReport& report = *outcome.report;
  if (report.recovered) context.say("recovered a step that an earlier process had begun");
  if (report.repaired) context.print("repaired  {}", report.repair_reason);
  if (!report.changed) {
    context.print("{}: is at version {}", options.local, report.version);
  } else {
    context.print("version   {}", from_to(report));
    context.print("fetched   {} in {}", human_bytes(double(report.bytes)),
                  plural(report.num_hops, "hop"));
    const bool whole = report.whole && report.num_changed == 0;
    context.print(
        "patched   {}; weights {}",
        whole ? "nothing: the version is stored whole" : plural(report.num_changed, "element"),
        human_bytes(double(report.weights_bytes)));
    if (report.num_side_files != 0) {
      context.print("files     {} added, changed or removed",
                    plural(report.num_side_files, "side file"));
    }
    context.print("time      {}, of which files changed for {}", seconds(report.seconds),
                  seconds(report.patch_seconds));
  }
  for (const std::string& path : report.set_aside) context.say("set aside " + shown_path(path));
  say_engines(context, outcome.engines.engines);
}

Json pull_json(const PullOutcome& outcome) {
  const PullReport& report = *outcome.report;
  Json json = {
      {"run", report.run},         {"version", report.version},     {"from", nullptr},
      {"changed", report.changed}, {"recovered", report.recovered}, {"repaired", report.repaired}};
  if (report.from) json["from"] = *report.from;
  if (report.repaired) json["repair_reason"] = report.repair_reason;
  json["hops"] = report.num_hops;
  json["bytes"] = report.bytes;
  json["side_files"] = report.num_side_files;
  if (report.num_ahead != 0) json["tensors_ahead"] = report.num_ahead;
  if (!report.set_aside.empty()) json["set_aside"] = report.set_aside;
  json["tensors"] = report.num_tensors;
  json["changed_elements"] = report.num_changed;
  json["full_bytes"] = report.weights_bytes;
  json["seconds"] = report.seconds;
  json["patch_seconds"] = report.patch_seconds;
  json["path"] = report.path.string();
  json["phases"] = phases_json(report.phases);
  if (outcome.notified) {
    json["engines"] = to_json(outcome.engines.engines);
    json["pause_seconds"] = outcome.engines.pause_seconds;
    json["serving"] = nullptr;
    if (const auto serving = outcome.engines.serving()) json["serving"] = serving->version;
  }
  return json;
}

}  // namespace deltawire::cli
