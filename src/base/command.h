// Runs a shell command that somebody configured: hooks, and engines that are told by a script.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

struct CommandOptions {
  std::vector<std::pair<std::string, std::string>> environment;  // beside what we inherited
  double timeout_seconds = 600;
};

// Ok when `sh -c command` exits with 0. It runs in a process group of its own, with an empty
// stdin; what it prints goes to our stderr, as stdout belongs to results. When the time is over the
// whole group gets SIGTERM and, two seconds later, SIGKILL: Unavailable. Any other exit status or a
// signal: Conflict ("it said no"), with the number. Io: it could not be started.
Status run_command(const std::string& command, const CommandOptions& options);

}  // namespace deltawire
