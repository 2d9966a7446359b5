#include "base/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace deltawire {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warning", "error",
                                                         "off"};

std::atomic<LogLevel> threshold{LogLevel::kOff};
std::mutex sink_mutex;
LogSink& sink() {
  static LogSink* const the_sink = new LogSink;  // never destroyed: threads may outlive main()
  return *the_sink;
}

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

std::string shortest_text(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  return {text, end};
}

// Always one line; quoted unless it is a single word.
std::string quoted_text(std::string_view text) {
  constexpr std::string_view kPlain = "-_./:@%+,*~#$&?![]{}()<>|;^";
  bool plain = !text.empty();
  for (const char c : text) {
    plain &= std::isalnum(static_cast<unsigned char>(c)) != 0 || (c & 0x80) != 0 ||
             kPlain.find(c) != std::string_view::npos;
  }
  if (plain) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.append({'\\', c});
    } else if (c == '\n') {
      out.append("\\n");
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(c));
      out.append(escape);
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

// A sink may itself emit events, which would deadlock on sink_mutex: they are dropped.
thread_local bool in_sink = false;
struct InSink {
  InSink() { in_sink = true; }
  ~InSink() { in_sink = false; }
};

std::string value_text(const LogValue& value) {
  return std::visit(Overloaded{[](std::monostate) -> std::string { return "none"; },
                               [](bool flag) -> std::string { return flag ? "true" : "false"; },
                               [](int64_t number) { return std::to_string(number); },
                               [](uint64_t number) { return std::to_string(number); },
                               [](double number) { return shortest_text(number); },
                               [](const std::string& text) { return quoted_text(text); }},
                    value.value());
}

nlohmann::ordered_json value_json(const LogValue& value) {
  using Json = nlohmann::ordered_json;
  return std::visit(Overloaded{[](std::monostate) { return Json(nullptr); },
                               [](double number) {  // JSON cannot represent infinities and NaN
                                 return std::isfinite(number) ? Json(number)
                                                              : Json(shortest_text(number));
                               },
                               [](const auto& other) { return Json(other); }},
                    value.value());
}

std::string time_text(std::chrono::system_clock::time_point time, bool utc) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  utc ? ::gmtime_r(&seconds, &parts) : ::localtime_r(&seconds, &parts);
  char text[32];
  const size_t size =
      std::strftime(text, sizeof text, utc ? "%Y-%m-%dT%H:%M:%S" : "%H:%M:%S", &parts);
  std::string out(text, size);
  if (!utc) return out;
  const auto since = time.time_since_epoch();
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(since) -
                  std::chrono::floor<std::chrono::seconds>(since);
  std::snprintf(text, sizeof text, ".%03dZ", int(ms.count()));
  return out + text;
}

}  // namespace

std::string_view log_level_name(LogLevel level) noexcept { return kLevelNames[size_t(level)]; }

std::optional<LogLevel> parse_log_level(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == name) return LogLevel(i);
  }
  return std::nullopt;
}

LogValue::LogValue(double number) : value_(number) {
  if (!std::isfinite(number) || number == 0) return;
  const int decimals = 3 - int(std::floor(std::log10(std::abs(number))));
  char text[400];  // the smallest number has 323 zeros
  const int size = std::snprintf(text, sizeof text, "%.*f", std::clamp(decimals, 0, 330), number);
  double shown = number;
  std::from_chars(text, text + size, shown);
  value_ = shown;
}

bool log_enabled(LogLevel level) noexcept {
  return level >= threshold.load(std::memory_order_relaxed) && level != LogLevel::kOff;
}

void log_event(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (!log_enabled(level) || in_sink) return;
  const LogRecord record{std::chrono::system_clock::now(), level, event, fields};
  const std::lock_guard lock(sink_mutex);
  const InSink mark;
  if (sink()) sink()(record);
}

void set_log_sink(LogLevel level, LogSink new_sink) {
  const std::lock_guard lock(sink_mutex);
  threshold = new_sink ? level : LogLevel::kOff;
  sink() = std::move(new_sink);
}

std::string format_log_text(const LogRecord& record) {
  std::string line = time_text(record.time, false) + " ";
  if (record.level >= LogLevel::kWarning) line.append(log_level_name(record.level)).append(": ");
  for (const char c : record.event) line.push_back(c == '.' || c == '_' ? ' ' : c);
  for (const LogField& field : record.fields) {
    line.append(" ").append(field.name).append("=").append(value_text(field.value));
  }
  return line;
}

std::string format_log_json(const LogRecord& record) {
  nlohmann::ordered_json line = {{"time", time_text(record.time, true)},
                                 {"level", log_level_name(record.level)},
                                 {"event", record.event}};
  for (const LogField& field : record.fields) {
    line[std::string(field.name)] = value_json(field.value);
  }
  return json_text(line, {.replace_bytes = true});
}

}  // namespace deltawire
