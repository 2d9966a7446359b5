// Runs a shell command from the configuration: hooks, and scripts that reload engines.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

struct CommandOptions {
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to the inherited one
  double timeout_seconds = 600;
  // Called now and then by the waiting thread; true ends the command. Empty: never.
  std::function<bool()> cancelled = {};
  // Receives the command's stdout, up to kMaxOutputBytes. Null: stdout goes to our stderr.
  std::string* output = nullptr;

  static constexpr size_t kMaxOutputBytes = size_t{64} << 10;
};

// Ok if and only if `sh -c command` exits with 0, even if this process ignores SIGCHLD or another
// thread waits for any child. The command runs in its own process group with an empty stdin. Its
// output goes to our stderr, because stdout is for results.
//   Conflict     Any other exit status or a signal, with the number: it said no.
//   Unavailable  Time was over, or how it ended is not known.
//   Cancelled    `cancelled` said so.
//   Io           It could not be started.
// A command that has not ended gets SIGTERM, with its whole process group, and SIGKILL two seconds
// later.
Status run_command(const std::string& command, const CommandOptions& options);

}  // namespace deltawire
