// Tells slime's engines of a version that was exported, in slime's order: pull, pause, reload,
// continue.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "notify/notifier.h"

namespace deltawire::cli {

struct SlimeEngineOptions {
  std::vector<std::string> urls;
  // The folder that engines pull into and load; empty: they load the version's own folder.
  std::string checkpoint;
  CallLimits limits = {.timeout_seconds = 600};  // a pull of many versions is one call
};
void add_slime_engine_options(Command* verb, SlimeEngineOptions* options);

// One outcome for each URL. An engine that cannot be reached or fails is resumed, and holds up no
// other one. Being told again is harmless: a pull takes an engine through all versions it missed.
std::vector<EngineOutcome> tell_slime_engines(const SlimeEngineOptions& options,
                                              const std::vector<std::string>& urls,
                                              const std::filesystem::path& source,
                                              uint64_t version);

}  // namespace deltawire::cli
