#include "base/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/file.h"

extern "C" char** environ;  // NOLINT: POSIX has no header for it

namespace deltawire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kGrace{2000};
constexpr milliseconds kLook{50};  // between two checks for cancellation

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

// An outer shell runs the command's shell and writes its exit status into a pipe. waitpid() cannot
// be relied on: a process that ignores SIGCHLD, as some trainers do, or that waits for any child on
// another thread, never learns how a child ended. The traps keep the outer shell alive until the
// inner one has handled a signal sent to both. Messages of the shells about signals ("Terminated")
// are discarded.
constexpr char kStatusScript[] =
    "exec 4>&2 2>/dev/null; trap : HUP INT TERM; "
    "(exec /bin/sh -c -- \"$1\" >&3 2>&4 3>&- 4>&-); echo \"$?\"";
constexpr int kOutputFd = 3;

// Reads never block. Only the child keeps the writing end open.
class Pipe {
 public:
  Status open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      return io_error(std::string("cannot make a pipe: ") + std::strerror(errno));
    }
    reads_.emplace(ends[0]);
    writes_.emplace(ends[1]);
    ::fcntl(ends[1], F_SETFL, O_WRONLY);  // the child may wait
    return {};
  }
  void close_writing() { writes_.reset(); }
  int read_fd() const { return reads_ ? reads_->get() : -1; }
  int write_fd() const { return writes_ ? writes_->get() : -1; }

  // Appends what has arrived to `text` and drops what exceeds `limit`. False: all writers have
  // closed the pipe.
  bool drain(std::string* text, size_t limit) const {
    char buffer[4096];
    for (;;) {
      const ssize_t got = ::read(read_fd(), buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return got < 0;
      text->append(buffer, std::min(size_t(got), limit - std::min(limit, text->size())));
    }
  }

 private:
  std::optional<Descriptor> reads_, writes_;
};

struct Shell {
  pid_t pid = 0;  // and its process group
  Pipe status;    // the exit status: a number and a newline
  Pipe output;    // only where it is wanted
  std::string line;
};

Result<pid_t> spawn_shell(const std::string& command, const CommandOptions& options,
                          const Shell& pipes) {
  std::vector<std::string> environment = environment_with(options.environment);
  std::vector<char*> envp;
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);
  std::string shell = "sh", flag = "-c", text = command;
  std::string teller = kStatusScript;
  char* const argv[] = {shell.data(), flag.data(), teller.data(),
                        shell.data(), text.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, pipes.status.write_fd(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(
      &files, options.output == nullptr ? STDERR_FILENO : pipes.output.write_fd(), kOutputFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // The child gets the default handling of signals that we ignore or block.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
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

enum class Wait : uint8_t { kEnded, kVanished, kTimeIsOver, kCancelled };

// True: the status is there, and goes to `status`.
bool parse_status(const Shell* shell, int* status) {
  const char* const begin = shell->line.data();
  const char* const end = begin + shell->line.size();
  const auto [after, error] = std::from_chars(begin, end, *status);
  return error == std::errc() && after != end && *after == '\n';
}

Wait wait_until(Shell* shell, Clock::time_point deadline, const CommandOptions& options,
                int* status) {
  for (;;) {
    const bool running = shell->status.drain(&shell->line, 16);  // the shell alone writes to it
    if (options.output != nullptr) {
      shell->output.drain(options.output, CommandOptions::kMaxOutputBytes);
    }
    if (parse_status(shell, status)) return Wait::kEnded;
    if (!running) return Wait::kVanished;
    if (options.cancelled && options.cancelled()) return Wait::kCancelled;
    const auto now = Clock::now();
    if (now >= deadline) return Wait::kTimeIsOver;
    const auto left = std::chrono::ceil<milliseconds>(deadline - now);
    // A pipe that was not opened has fd -1, which poll() ignores.
    pollfd pipes[2] = {{shell->status.read_fd(), POLLIN, 0}, {shell->output.read_fd(), POLLIN, 0}};
    ::poll(pipes, 2, int(std::min(left, kLook).count()));
  }
}

void reap(const Shell& shell) {
  while (::waitpid(shell.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void kill_group(Shell* shell) {
  ::kill(-shell->pid, SIGTERM);
  int status = 0;
  wait_until(shell, Clock::now() + kGrace, {}, &status);
  ::kill(-shell->pid, SIGKILL);  // also for those the shell left behind
  reap(*shell);
}

Status status_of_exit(int status) {
  if (status == 0) return {};
  std::string message = "the command ended with status " + std::to_string(status);
  if (status > 128) message += " (signal " + std::to_string(status - 128) + ")";
  return conflict(std::move(message));
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

}  // namespace

Status run_command(const std::string& command, const CommandOptions& options) {
  Shell shell;
  DW_RETURN_IF_ERROR(shell.status.open());
  if (options.output != nullptr) DW_RETURN_IF_ERROR(shell.output.open());
  DW_ASSIGN_OR_RETURN(shell.pid, spawn_shell(command, options, shell));
  shell.status.close_writing();
  shell.output.close_writing();
  constexpr double kYear = 365.0 * 24 * 3600;  // what a clock can still add
  const std::chrono::duration<double> timeout(std::min(options.timeout_seconds, kYear));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  int status = 0;
  const Wait how = wait_until(&shell, deadline, options, &status);
  if (how == Wait::kEnded) {
    reap(shell);
    return status_of_exit(status);
  }
  kill_group(&shell);
  switch (how) {
    case Wait::kCancelled:
      return cancelled("the command was stopped on request");
    case Wait::kTimeIsOver:
      return unavailable("the command did not finish within " +
                         seconds_text(options.timeout_seconds) + " and was killed");
    default:
      return unavailable(
          "the shell of the command was killed: the exit status of the command is unknown");
  }
}

}  // namespace deltawire
