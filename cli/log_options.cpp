#include "cli/log_options.h"

#include <unistd.h>

namespace deltawire::cli {
namespace {

// One write per line: lines of several processes that share a stderr do not mix.
void write_line(std::string line) {
  line.push_back('\n');
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (n <= 0) return;  // nobody reads it: nothing to be done, and no reason to stop
    done += size_t(n);
  }
}

}  // namespace

void add_log_options(Command* verb, LogOptions* options, LogLevel usual) {
  options->level = usual;
  verb->add_parsed(
          "--log-level",
          [options](const std::string& name) { options->level = *parse_log_level(name); },
          "events on stderr from this level up: debug, info, warning, error or off (default " +
              std::string(log_level_name(usual)) + ")")
      ->type_name("LEVEL")
      ->check([](const std::string& name) {
        return parse_log_level(name) ? "" : "\"" + name + "\" is not a level";
      });
  verb->add_parsed(
          "--log-format", [options](const std::string& name) { options->json = name == "json"; },
          "text (default) or json: one object per line")
      ->type_name("FORMAT")
      ->check([](const std::string& name) {
        return name == "text" || name == "json" ? "" : "\"" + name + "\" is not text or json";
      });
}

void start_log(const LogOptions& options) {
  const bool clear_bar = ::isatty(STDERR_FILENO) != 0;
  set_log_sink(options.level, [json = options.json, clear_bar](const LogRecord& record) {
    write_line((clear_bar ? "\r\033[K" : "") +
               (json ? format_log_json(record) : format_log_text(record)));
  });
}

}  // namespace deltawire::cli
