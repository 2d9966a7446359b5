#include "cli/context.h"

#include "base/json.h"

#include <fcntl.h>
#include <fmt/color.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/stop.h"
#include "cli/next_step.h"
#include "cli/table.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

// stderr may be closed or full; then there is nowhere to report it.
template <class... Args>
void say_on_stderr(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stderr);
}

std::atomic<bool> interrupted{false};
int print_error = 0;  // errno of the first write to stdout that failed

extern "C" void on_interrupt(int signal) {
  if (interrupted.exchange(true)) {  // a second signal ends the process at once
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

bool plain_terminal() {
  const char* term = std::getenv("TERM");
  return std::getenv("NO_COLOR") != nullptr || term == nullptr || std::string_view(term) == "dumb";
}

}  // namespace

Json phases_json(const std::vector<Phase>& phases) {
  Json list = Json::array();
  for (const Phase& phase : phases) {
    list.push_back({{"name", phase.name}, {"begin", phase.begin}, {"end", phase.end}});
  }
  return list;
}

void listen_for_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  set_stop_request(was_interrupted);
  std::signal(SIGCHLD,
              SIG_DFL);  // our parent may ignore it, but we need the exit status of children
}

bool was_interrupted() { return interrupted.load(); }

void sleep_seconds(double seconds) { sleep_unless(seconds, was_interrupted); }

Status check_interrupted() {
  return interrupted.load() ? cancelled("stopped on request") : Status();
}

std::string shown_path(std::string_view path) { return escape_controls(path); }

void keep_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // open() returns the lowest free number, which is this one. It is opened read-only, so that
    // printing to it fails visibly.
    ::open("/dev/null", O_RDONLY);
  }
}

void print_out(std::string_view text) {
  if (print_error != 0) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    print_error = errno != 0 ? errno : EIO;
  }
}

void flush_out() {
  errno = 0;
  if (std::fflush(stdout) != 0 && print_error == 0) print_error = errno != 0 ? errno : EIO;
}

bool can_print() { return print_error == 0; }

int finish_printing(int status) {
  flush_out();
  // Some filesystems report only on close that the disk is full.
  errno = 0;
  if (std::fclose(stdout) != 0 && print_error == 0) print_error = errno != 0 ? errno : EIO;
  if (print_error == 0 || print_error == EPIPE) return status;
  const int code = Context().fail(
      io_error(std::string("cannot write to stdout: ") + std::strerror(print_error)));
  return status > 1 ? status : code;  // an error before this one says more
}

void Context::say(std::string_view line) const {
  if (!json && !quiet) print_out(fmt::format("{}\n", line));
}

void Context::emit(const Json& object) const {
  if (!json) return;
  print_out(json_text(object, {.replace_bytes = true}) + "\n");
}

int Context::fail(const Status& status) const {
  // After a request to stop, requests are given up; a missing answer is then not the store's
  // failure.
  const bool gave_up = status.code() == Code::kUnavailable && was_interrupted();
  const Status said = gave_up ? cancelled("stopped on request; " + status.message()) : status;
  const std::string name(code_name(said.code()));
  const std::string next = next_step(said, verb);
  if (json) {
    Json error = {{"code", name}, {"message", said.message()}};
    if (!next.empty()) error["next"] = next;
    emit({{"error", std::move(error)}});
  }
  const bool coloured = isatty(STDERR_FILENO) != 0 && !plain_terminal();
  say_on_stderr("{} {}\n",
                coloured ? fmt::format(fmt::emphasis::bold | fg(fmt::terminal_color::red), "error:")
                         : "error:",
                escape_controls(said.to_string()));
  if (!next.empty()) say_on_stderr("next:  {}\n", next);
  return int(said.code());
}

bool Context::colour() const { return isatty(STDOUT_FILENO) != 0 && !plain_terminal(); }

ProgressBar::ProgressBar(const Context& context, std::string what)
    : shown_(!context.quiet && isatty(STDERR_FILENO) != 0),
      what_(std::move(what)),
      start_(steady_seconds()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) say_on_stderr("\r\033[K");
}

Progress ProgressBar::callback() {
  return [this](uint64_t done, uint64_t total) {
    const double now = steady_seconds();
    if (shown_ && now - start_ > 1 && now - last_ > 0.1) {
      last_ = now;
      draw(done, total);
    }
    return !interrupted.load();
  };
}

namespace {

std::string time_left(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 120 * 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace

void ProgressBar::draw(uint64_t done, uint64_t total) {
  constexpr int kWidth = 30;
  if (done >= total) {  // everything is transferred; results are now checked, written and synced
    say_on_stderr("\r\033[K{}  {} done, finishing", what_, human_bytes(double(total)));
    std::fflush(stderr);
    drawn_ = true;
    return;
  }
  const double share = double(done) / double(total);
  const double elapsed = steady_seconds() - start_;
  const double left = share > 0 ? elapsed / share - elapsed : 0;
  const int filled = int(share * kWidth);
  say_on_stderr("\r\033[K{} [{:#<{}}{: <{}}] {:3.0f} %  {} of {}  {}/s  {} left", what_, "", filled,
                "", kWidth - filled, share * 100, human_bytes(double(done)),
                human_bytes(double(total)), human_bytes(double(done) / elapsed), time_left(left));
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace deltawire::cli
