// What `serve-pull` and `slime-pull` share: whose files may be touched, and by which rules.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bridge/slime/pull.h"
#include "cli/command.h"
#include "cli/context.h"
#include "cli/log_options.h"
#include "cli/slime/peer_flags.h"

namespace deltawire::cli {

struct SlimePullSettings {
  std::filesystem::path base;
  std::string pre_read_hook;
  double timeout_seconds = 1800;
  ReceiverFlags receiver;
  LogOptions log;
};

void add_slime_pull_options(Command* verb, Context& context, SlimePullSettings* settings,
                            LogLevel usual);

// Runs one pull, within its time: Unavailable, with nothing changed, when that is over.
Result<SlimePulled> pull_within(const Context& context, const SlimePullSettings& settings,
                                const std::vector<std::filesystem::path>& roots,
                                const SlimePullRequest& request);

nlohmann::ordered_json slime_pull_json(const SlimePullReport& report);

}  // namespace deltawire::cli
