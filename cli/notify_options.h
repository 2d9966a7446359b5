// --notify, --exec and their limits: which engines are told about new weights, and what came of it.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/context.h"
#include "deltawire/status.h"
#include "notify/notifier.h"

namespace deltawire::cli {

struct NotifyOptions {
  std::vector<std::string> notify, exec;
  CallLimits limits;
};

void add_notify_options(Command* verb, NotifyOptions* options);
// PREFIX-timeout and PREFIX-retries of calls of `what`; defaults are what `limits` has.
void add_call_limits(Command* verb, const std::string& prefix, const std::string& what,
                     CallLimits* limits);

// With the engines' key from DELTAWIRE_ENGINE_API_KEY; an interrupt ends their calls.
EngineOptions engine_options(const CallLimits& limits);
// Without options: a notifier without engines.
Result<Notifier> make_notifier(const NotifyOptions& options);

// [{"engine":"sglang=http://...","serving":12,"reloaded":true,"resumed":true, ...}, ...]
nlohmann::ordered_json to_json(const std::vector<EngineOutcome>& engines);
// One line per engine: "engine    sglang=http://...: serves version 12"
void say_engines(const Context& context, const std::vector<EngineOutcome>& engines);

}  // namespace deltawire::cli
