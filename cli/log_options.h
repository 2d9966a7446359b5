// --log-level and --log-format: structured events on stderr.
#pragma once

#include <string>

#include "cli/command.h"
#include "deltawire/progress.h"

namespace deltawire::cli {

struct LogOptions {
  LogLevel level = LogLevel::kWarning;
  bool json = false;
};

// `usual` is the level without --log-level: info for verbs that run on, warning for others.
void add_log_options(Command* verb, LogOptions* options, LogLevel usual = LogLevel::kWarning);

// From now on events go to stderr, one line each, also while a progress bar is drawn there.
void start_log(const LogOptions& options);

}  // namespace deltawire::cli
