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

#include "base/file.h"
#include "gateway_script.h"  // made from tests/servers
#include "store/s3_store.h"

#ifdef DELTAWIRE_HAVE_S3
#endif

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

#ifdef DELTAWIRE_HAVE_S3
namespace {

constexpr const char* kBucket = "deltawire-demo";

// "export NAME=value" lines; sets them for this process and its children.
Result<std::string> take_environment(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string endpoint;
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    if (!line.starts_with("export ") || equals == std::string::npos) continue;
    const std::string name = line.substr(7, equals - 7), value = line.substr(equals + 1);
    ::setenv(name.c_str(), value.c_str(), 1);
    if (name == "DELTAWIRE_RGW_ENDPOINT") endpoint = value;
  }
  if (endpoint.empty()) return internal_error(path.string() + ": names no endpoint");
  return endpoint;
}

}  // namespace
#endif

Result<Gateway> Gateway::start(const std::filesystem::path& folder) {
#ifdef DELTAWIRE_HAVE_S3
  Gateway gateway;
  gateway.script_ = folder.parent_path() / "rgw.sh";
  DW_RETURN_IF_ERROR(write_text_file(gateway.script_, kGatewayScript));
  DW_RETURN_IF_ERROR(write_text_file(folder.parent_path() / "common.sh", kCommonScript));
  std::filesystem::permissions(gateway.script_, std::filesystem::perms::owner_all);
  const std::filesystem::path log = folder.parent_path() / "rgw.log";
  DW_ASSIGN_OR_RETURN(
      Process up,
      Process::start(gateway.script_.string(),
                     {"up", folder.string(), "--owner", std::to_string(::getpid())}, log));
  const int status = up.wait();
  if (status == 77) {
    return unsupported(
        "--s3 starts a Ceph RADOS Gateway: install ceph-mon, ceph-osd, ceph-common "
        "and radosgw (Debian), or run `make demo` without it");
  }
  if (status != 0) return unavailable("the Ceph RADOS Gateway did not start; see " + log.string());
  gateway.folder_ = folder;
  gateway.bucket_ = kBucket;
  DW_ASSIGN_OR_RETURN(gateway.endpoint_, take_environment(folder / "env"));
  StoreOptions options;
  options.endpoint = gateway.endpoint_;
  DW_RETURN_IF_ERROR(make_s3_bucket(gateway.bucket_, options));
  return gateway;
#else
  (void)folder;
  return unsupported("this build has no S3: libcurl was not found when it was configured");
#endif
}

Gateway::Gateway(Gateway&& other) noexcept
    : script_(std::move(other.script_)),
      folder_(std::exchange(other.folder_, {})),
      endpoint_(std::move(other.endpoint_)),
      bucket_(std::move(other.bucket_)) {}

Gateway& Gateway::operator=(Gateway&& other) noexcept {
  std::swap(script_, other.script_);
  std::swap(folder_, other.folder_);
  std::swap(endpoint_, other.endpoint_);
  std::swap(bucket_, other.bucket_);
  return *this;
}

Gateway::~Gateway() {
  if (folder_.empty()) return;
  (void)run_to_end(script_.string(), {"down", folder_.string()},
                   folder_.parent_path() / "down.log");
}

}  // namespace deltawire::cli
