#include "cli/notify_options.h"

#include <fmt/format.h>

#include <cstdlib>

#include "cli/options.h"

namespace deltawire::cli {

void add_notify_options(Command* verb, NotifyOptions* options) {
  verb->add_option("--notify", options->notify,
                   "pause, reload and resume an engine: sglang=URL or vllm=URL; may be repeated. "
                   "A key comes from DELTAWIRE_ENGINE_API_KEY")
      ->type_name("KIND=URL")
      ->repeatable();
  verb->add_option("--exec", options->exec,
                   "call a shell command at each new version; it finds DELTAWIRE_VERSION, "
                   "_RUN, _PATH and _PHASE in its environment; may be repeated")
      ->type_name("COMMAND")
      ->repeatable();
  add_call_limits(verb, "--notify", "an engine or of one command", &options->limits);
}

void add_call_limits(Command* verb, const std::string& prefix, const std::string& what,
                     CallLimits* limits) {
  add_seconds(verb, prefix + "-timeout", &limits->timeout_seconds,
              fmt::format("limit of one call of {} (default {:g})", what, limits->timeout_seconds),
              0.001, 86400);
  add_whole_number(verb, prefix + "-retries", &limits->retries,
                   fmt::format("further attempts after no connection, no answer or a 5xx (default "
                               "{})",
                               limits->retries),
                   0, 100);
}

EngineOptions engine_options(const CallLimits& limits) {
  EngineOptions options;
  options.limits = limits;
  options.cancelled = was_interrupted;
  if (const char* key = std::getenv("DELTAWIRE_ENGINE_API_KEY")) options.api_key = Secret(key);
  return options;
}

Result<Notifier> make_notifier(const NotifyOptions& options) {
  const EngineOptions calls = engine_options(options.limits);
  std::vector<std::string> specs = options.notify;
  for (const std::string& command : options.exec) specs.push_back("exec=" + command);
  Notifier notifier(was_interrupted);
  for (const std::string& spec : specs) {
    DW_ASSIGN_OR_RETURN(auto engine, make_engine(spec, calls));
    notifier.add(std::move(engine));
  }
  return notifier;
}

nlohmann::ordered_json to_json(const std::vector<EngineOutcome>& engines) {
  auto list = nlohmann::ordered_json::array();
  for (const EngineOutcome& engine : engines) {
    nlohmann::ordered_json one = {{"engine", engine.engine}, {"serving", nullptr}};
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
    const std::string serves = engine.serving ? fmt::format("serves version {}", engine.serving->version)
                                              : "which version it serves is not known";
    context.say(fmt::format("engine    {}: {}{}", engine.engine, serves,
                            engine.resumed ? "" : "; it may still be paused"));
    for (const std::string& warning : engine.warnings) context.say("          " + warning);
  }
}

}  // namespace deltawire::cli
