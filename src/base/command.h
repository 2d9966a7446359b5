// Runs a shell command that somebody configured: hooks, and engines that are told by a script.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

struct CommandOptions {
  std::vector<std::pair<std::string, std::string>> environment = {};  // beside what we inherited
  double timeout_seconds = 600;
  // Asked now and then, from the thread that waits: true ends the command. Empty: never.
  std::function<bool()> cancelled = {};
  // What it prints to its stdout goes here instead, as far as kMaxOutputBytes. Null: to our stderr.
  std::string* output = nullptr;

  static constexpr size_t kMaxOutputBytes = size_t{64} << 10;
};

// Ok when `sh -c command` exits with 0, and only then: also where the process ignores SIGCHLD, and
// where another thread waits for any child. It runs in a process group of its own, with an empty
// stdin; what it prints goes to our stderr, as stdout belongs to results.
//   Conflict     Any other exit status or a signal, with the number: it said no.
//   Unavailable  Time was over, or how it ended is not known.
//   Cancelled    `cancelled` said so.
//   Io           It could not be started.
// Unless it has ended, the whole group gets SIGTERM and, when that has not helped for two seconds,
// SIGKILL.
Status run_command(const std::string& command, const CommandOptions& options);

}  // namespace deltawire
