// Tells engines about a version in slime's layout, in slime's order: pull, pause, reload, continue.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/context.h"
#include "engine/notifier.h"

namespace deltawire::cli {

struct PushOptions {
  std::vector<std::string> engines;  // URLs
  std::vector<std::string> forget;
  bool remove_acknowledged = false;
  CallLimits limits = {.timeout_seconds = 600};  // a pull of many versions is one call
};

void add_push_options(Command* verb, PushOptions* options);

struct PushOutcome {
  std::vector<EngineOutcome> engines;  // in the order of the options
  std::vector<uint64_t> removed;
  std::vector<std::string> behind;  // engines that were told before, and do not have the version
  // The first engine's failure, or that of what is kept beside the versions.
  Status status;
};

// `local`: what engines pull into and load; empty: they load the version's folder itself. What an
// engine acknowledged is written down at once. One that failed is told again by the next push: a
// pull brings it through all versions that it missed, and they are kept until then.
PushOutcome push_version(const PushOptions& options, const std::filesystem::path& source,
                         const std::filesystem::path& local, const std::string& dialect,
                         uint64_t version);

nlohmann::ordered_json push_json(const PushOutcome& outcome);
void say_push(const Context& context, const PushOutcome& outcome);

}  // namespace deltawire::cli
