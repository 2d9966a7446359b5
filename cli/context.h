// What every verb shares: the global flags, and the only ways it may speak.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  bool json = false;   // one object on stdout, nothing else there
  bool quiet = false;  // no progress, no report; errors still come
  unsigned threads = 0;
  std::string verb;  // that was chosen; empty before

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

// A bar on a terminal's stderr, once work has taken a second. Clears itself away. Also the place
// where Ctrl-C is heard: work stops at its next step and cleans up.
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
// Cancelled once Ctrl-C was heard: for verbs without a bar.
Status check_interrupted();

double now_seconds();
// Less when Ctrl-C is heard.
void sleep_seconds(double seconds);

// A path or name as it can be shown: control characters, which could steer a terminal, and bytes
// that are not UTF-8 come as \xNN.
std::string shown_path(std::string_view path);

// ---- stdout, for everything that is printed there

// Descriptors 0 to 2 that were closed at the start must not become files that are read or written:
// call this first.
void keep_standard_descriptors();
void print_out(std::string_view text);
// What was printed can be read now: for verbs that go on. A failure is kept for finish_printing().
void flush_out();
bool can_print();  // false once something could not be written
// Call this last, with the exit status so far. Returns what it should be: what could not be
// written is an i/o error, unless the reader has gone away (`| head`), which is its right.
int finish_printing(int status);

}  // namespace deltawire::cli
