// What all verbs share: the global flags and all ways to produce output.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "deltawire/delta.h"
#include "deltawire/status.h"

namespace deltawire::cli {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
Json phases_json(const std::vector<Phase>& phases);

class Context {
 public:
  bool json = false;   // print one object on stdout and nothing else
  bool quiet = false;  // print no progress and no report, only errors
  unsigned threads = 0;
  std::string verb;  // the verb given; empty: none yet

  // Lines for people, on stdout; nothing with --json or --quiet.
  void say(std::string_view line) const;
  template <class... Args>
  void print(fmt::format_string<Args...> line, Args&&... args) const {
    say(fmt::format(line, std::forward<Args>(args)...));
  }
  // The result for machines, on stdout; only with --json.
  void emit(const Json& object) const;

  // A verb ends by returning one of these to main().
  int succeed() const { return 0; }
  int finish(const Status& status) const { return status.ok() ? succeed() : fail(status); }
  // The message and what to do next on stderr (and as JSON); returns the code's number.
  int fail(const Status& status) const;

  bool colour() const;  // stdout is a terminal that shows it
};

// A progress bar on a terminal's stderr, shown after one second and removed at the end. Its
// callback also reports Ctrl-C: work stops at its next step and cleans up.
class ProgressBar {
 public:
  ProgressBar(const Context& context, std::string what);
  ~ProgressBar();
  Progress callback();

 private:
  void draw(uint64_t done, uint64_t total);
  const bool shown_;
  const std::string what_;
  const double start_;
  double last_ = 0;
  bool drawn_ = false;
};

void listen_for_interrupts();
bool was_interrupted();
// Cancelled after Ctrl-C; for verbs without a bar.
Status check_interrupted();

// Sleeps; Ctrl-C ends it early.
void sleep_seconds(double seconds);

// A path or name that is safe to print: control characters, and bytes that are not UTF-8, become
// \xNN.
std::string shown_path(std::string_view path);

// ---- stdout

// Opens descriptors 0 to 2 if they are closed, so that no other file gets their numbers. Call this
// first.
void keep_standard_descriptors();
void print_out(std::string_view text);
// Flushes stdout, for verbs that continue to run. finish_printing() reports a failure.
void flush_out();
bool can_print();  // false once something could not be written
// Call this last with the exit status. Returns the final one: an i/o error if output could not be
// written, unless the reader closed the pipe (`| head`).
int finish_printing(int status);

}  // namespace deltawire::cli
