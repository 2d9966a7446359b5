#include "lab/demo/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace deltawire::cli {
namespace {

int exit_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string last_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

Result<Process> Process::start(const std::string& program, const std::vector<std::string>& args,
                               const std::filesystem::path& log) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return io_error(log.string() + ": cannot open: " + std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  const int error = errno;
  ::close(fd);
  if (pid < 0) return io_error("cannot start " + program + ": " + std::strerror(error));
  return Process(pid);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(other.status_) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(status_, other.status_);
  return *this;
}

Process::~Process() {
  if (!running()) return;
  kill(SIGKILL);
  wait();
}

void Process::kill(int signal) const {
  if (pid_ > 0 && status_ < 0) ::kill(pid_, signal);
}

bool Process::running() {
  if (pid_ <= 0 || status_ >= 0) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) status_ = exit_status(status);
  return status_ < 0;
}

int Process::wait() {
  if (pid_ <= 0) return -1;
  int status = 0;
  while (status_ < 0) {
    const pid_t got = ::waitpid(pid_, &status, 0);
    if (got == pid_) status_ = exit_status(status);
    if (got < 0 && errno != EINTR) status_ = 127;
  }
  return status_;
}

Result<std::string> run_to_end(const std::string& program, const std::vector<std::string>& args,
                               const std::filesystem::path& log) {
  std::error_code ignored;
  std::filesystem::remove(log, ignored);
  DW_ASSIGN_OR_RETURN(Process process, Process::start(program, args, log));
  const int status = process.wait();
  std::ifstream file(log);
  std::ostringstream text;
  text << file.rdbuf();
  if (status == 0) return text.str();
  return internal_error(program + (args.empty() ? "" : " " + args.front()) + " ended with " +
                        std::to_string(status) + ": " + last_line(log));
}

}  // namespace deltawire::cli
