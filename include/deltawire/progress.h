// Reports of the library while it works: progress, phases, log events.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

// Called now and then from the calling thread with bytes done and bytes to do; while results are
// written and synced, with all done. Returning false cancels the work: it ends with Cancelled and
// leaves nothing behind, unless the result has already been put in its place.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;

// When each phase began and ended, seconds since the publish or pull began; phases overlap.
struct Phase {
  std::string name;
  double begin = 0, end = 0;
};

class Secret;  // never logged

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

std::string_view log_level_name(LogLevel level) noexcept;  // "debug", ..., "off"
std::optional<LogLevel> parse_log_level(std::string_view name);

// A value that can be logged. A Secret cannot be.
class LogValue {
 public:
  LogValue(std::string_view text) : value_(std::string(text)) {}    // NOLINT: implicit on purpose
  LogValue(const char* text) : LogValue(std::string_view(text)) {}  // NOLINT
  LogValue(const std::string& text) : LogValue(std::string_view(text)) {}   // NOLINT
  LogValue(const std::filesystem::path& path) : LogValue(path.native()) {}  // NOLINT
  LogValue(const Status& status) : LogValue(status.to_string()) {}          // NOLINT
  LogValue(const Secret&) = delete;
  LogValue(std::same_as<bool> auto flag) : value_(flag) {}                 // NOLINT
  LogValue(std::signed_integral auto number) : value_(int64_t{number}) {}  // NOLINT
  LogValue(std::unsigned_integral auto number)                             // NOLINT
      requires(!std::same_as<decltype(number), bool>)
      : value_(uint64_t{number}) {}
  // Rounded to four significant digits, and to no more than a whole number.
  LogValue(double number);  // NOLINT
  // Nothing is a value too: "serving": null.
  template <class T>
  LogValue(const std::optional<T>& maybe) {  // NOLINT
    if (maybe) *this = LogValue(*maybe);
  }

  using Value = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string>;
  const Value& value() const noexcept { return value_; }

 private:
  Value value_;
};

struct LogField {
  LogField(std::string_view name_, LogValue value_) : name(name_), value(std::move(value_)) {}
  std::string_view name;  // snake_case, with its unit: "version", "patch_seconds", "bytes"
  LogValue value;
};

struct LogRecord {
  std::chrono::system_clock::time_point time;
  LogLevel level = LogLevel::kInfo;
  std::string_view event;  // "pull.committed"
  std::vector<LogField> fields;
};

// Gets every record of at least `level`, one at a time, from whichever thread is at work. Its views
// end with the call. What it calls of the library has no events. An empty sink: none. One sink per
// process.
using LogSink = std::function<void(const LogRecord&)>;
void set_log_sink(LogLevel level, LogSink sink);

// "12:03:04 pull committed version=12 path="a b"": local time; the level only from warning up.
std::string format_log_text(const LogRecord& record);
// {"time":"2026-08-21T12:03:04.567Z","level":"info","event":"pull.committed","version":12}
std::string format_log_json(const LogRecord& record);

}  // namespace deltawire
