#include "cli/context.h"

#include <fmt/color.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "cli/units.h"

namespace deltawire::cli {
namespace {

std::atomic<bool> interrupted{false};

extern "C" void on_interrupt(int signal) {
  if (interrupted.exchange(true)) {  // twice: at once
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

bool plain_terminal() {
  const char* term = std::getenv("TERM");
  return std::getenv("NO_COLOR") != nullptr || term == nullptr || std::string_view(term) == "dumb";
}

}  // namespace

void listen_for_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}

bool was_interrupted() { return interrupted.load(); }

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Context::say(std::string_view line) const {
  if (!json && !quiet) fmt::print("{}\n", line);
}

void Context::emit(const nlohmann::ordered_json& object) const {
  if (json)
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

int Context::fail(const Status& status) const {
  const std::string name(code_name(status.code()));
  if (json) emit({{"error", {{"code", name}, {"message", status.message()}}}});
  const bool coloured = isatty(STDERR_FILENO) != 0 && !plain_terminal();
  fmt::print(stderr, "{} {}\n",
             coloured ? fmt::format(fmt::emphasis::bold | fg(fmt::terminal_color::red), "error:")
                      : "error:",
             status.to_string());
  return int(status.code());
}

bool Context::colour() const { return isatty(STDOUT_FILENO) != 0 && !plain_terminal(); }

ProgressBar::ProgressBar(const Context& context, std::string what)
    : shown_(!context.quiet && isatty(STDERR_FILENO) != 0),
      what_(std::move(what)),
      start_(now_seconds()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

Progress ProgressBar::callback() {
  return [this](uint64_t done, uint64_t total) {
    const double now = now_seconds();
    if (shown_ && now - start_ > 1 && now - last_ > 0.1) {
      last_ = now;
      draw(done, total);
    }
    return !interrupted.load();
  };
}

void ProgressBar::draw(uint64_t done, uint64_t total) {
  constexpr int kWidth = 30;
  const double share = total == 0 ? 1 : double(done) / double(total);
  const double elapsed = now_seconds() - start_;
  const double left = share > 0 ? elapsed / share - elapsed : 0;
  const int filled = int(share * kWidth);
  fmt::print(stderr, "\r\033[K{} [{:#<{}}{: <{}}] {:3.0f} %  {}/s  {:.0f} s left", what_, "",
             filled, "", kWidth - filled, share * 100, human_bytes(double(done) / elapsed), left);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace deltawire::cli
