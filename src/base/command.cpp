#include "base/command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

extern "C" char** environ;  // NOLINT: POSIX has no header for it

namespace deltawire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kGrace{2000};

// The environment of the child; a name given twice keeps its last value.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& additions) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    bool replaced = false;
    for (const auto& [name, value] : additions) replaced |= text.starts_with(name + "=");
    if (!replaced) all.emplace_back(text);
  }
  for (const auto& [name, value] : additions) all.push_back(name + "=" + value);
  return all;
}

Result<pid_t> spawn_shell(const std::string& command, const CommandOptions& options) {
  std::vector<std::string> environment = environment_with(options.environment);
  std::vector<char*> envp;
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);
  std::string shell = "sh", flag = "-c", text = command;
  char* const argv[] = {shell.data(), flag.data(), text.data(), nullptr};

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Signals that we ignore or block are the child's to have again.
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGHUP}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(
      &attributes, short(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/bin/sh", &files, &attributes, argv, envp.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return io_error(std::string("cannot start /bin/sh: ") + std::strerror(error));
  return pid;
}

// The child's wait status, or nothing when it still runs at `deadline`.
std::optional<int> wait_until(pid_t pid, Clock::time_point deadline) {
  milliseconds nap{1};
  for (;;) {
    int status = 0;
    const pid_t got = ::waitpid(pid, &status, WNOHANG);
    if (got == pid) return status;
    if (got < 0 && errno != EINTR) return 0;  // reaped by someone who waits for any child
    if (Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, milliseconds(20));
  }
}

void kill_group(pid_t group) {
  ::kill(-group, SIGTERM);
  const bool ended = wait_until(group, Clock::now() + kGrace).has_value();
  ::kill(-group, SIGKILL);  // also for those the leader left behind
  if (!ended) wait_until(group, Clock::time_point::max());
}

Status status_of_exit(int wait_status) {
  if (WIFEXITED(wait_status)) {
    const int code = WEXITSTATUS(wait_status);
    if (code == 0) return {};
    return conflict("the command ended with status " + std::to_string(code));
  }
  return conflict("the command was ended by signal " + std::to_string(WTERMSIG(wait_status)));
}

}  // namespace

Status run_command(const std::string& command, const CommandOptions& options) {
  DW_ASSIGN_OR_RETURN(const pid_t pid, spawn_shell(command, options));
  constexpr double kYear = 365.0 * 24 * 3600;  // what a clock can still add
  const std::chrono::duration<double> timeout(std::min(options.timeout_seconds, kYear));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  if (const std::optional<int> ended = wait_until(pid, deadline)) return status_of_exit(*ended);
  kill_group(pid);
  char text[32];
  std::snprintf(text, sizeof text, "%g", options.timeout_seconds);
  return unavailable(std::string("the command did not end in ") + text + " s and was killed");
}

}  // namespace deltawire
