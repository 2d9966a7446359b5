#include "cli/table.h"

#include <fmt/color.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "tensor/text.h"

namespace deltawire::cli {

std::string human_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) bytes /= 1000, ++unit;
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  return fmt::format("{:.{}f} {}", bytes, bytes < 10 ? 2 : bytes < 100 ? 1 : 0, kUnits[unit]);
}

std::string human_count(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string plural(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", human_count(count), noun, count == 1 ? "" : "s");
}

std::string percent(double share) {
  return fmt::format("{:.{}f} %", share * 100, share < 0.1 ? 3 : 1);
}

std::string seconds(double value) { return fmt::format("{:.{}f} s", value, value < 10 ? 2 : 1); }

std::string age_text(int64_t seconds) {
  if (seconds < 120) return fmt::format("{} s ago", seconds);
  if (seconds < 120 * 60) return fmt::format("{} min ago", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h ago", seconds / 3600);
  return fmt::format("{} days ago", seconds / 86400);
}

namespace {

// Digits with at most one point, and a suffix; false when it is anything else.
bool parse_scaled(std::string_view text, double lone_b, uint64_t* value) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string number_text(text.substr(0, digits));
  std::string_view suffix = text.substr(digits);
  char* end = nullptr;
  const double number = std::strtod(number_text.c_str(), &end);
  if (number_text.empty() || *end != '\0' || number_text == ".") return false;
  double factor = 1;
  if (suffix == "B") {
    factor = lone_b;
  } else if (!suffix.empty()) {
    const size_t power = suffix[0] == 'k' ? 0 : std::string_view("KMGT").find(suffix[0]);
    if (power == std::string_view::npos) return false;
    suffix.remove_prefix(1);
    const bool binary = suffix.starts_with("i");
    if (binary) suffix.remove_prefix(1);
    if (!suffix.empty() && suffix != "B") return false;
    factor = std::pow(binary ? 1024.0 : 1000.0, double(power + 1));
  }
  if (number * factor > 9e18) return false;
  *value = uint64_t(std::llround(number * factor));
  return true;
}

}  // namespace

Result<uint64_t> parse_count(std::string_view text) {
  uint64_t value = 0;
  if (parse_scaled(text, 1e9, &value)) return value;
  return invalid_argument(quote(text) + " is not a count; try 512, 100M or 1.7B");
}

Result<uint64_t> parse_bytes(std::string_view text) {
  uint64_t value = 0;
  if (parse_scaled(text, 1, &value)) return value;
  return invalid_argument(quote(text) + " is not a size; try 1000000, 64MiB or 1GB");
}

Result<uint64_t> parse_duration(std::string_view text) {
  constexpr std::pair<char, uint64_t> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  uint64_t number = 0;
  const char *begin = text.data(), *end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, number);
  uint64_t unit = rest == end ? 1 : 0;
  for (const auto& [letter, seconds] : kUnits) {
    if (end - rest == 1 && *rest == letter) unit = seconds;
  }
  if (error != std::errc() || unit == 0 || number > uint64_t{100} * 365 * 86400) {
    return invalid_argument("\"" + std::string(text) + "\" is not a time; try 90s, 30m, 6h or 2d");
  }
  return number * unit;
}

namespace {

// Counts characters, not bytes, so that names in any script line up.
size_t width_of(std::string_view text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool utf8_terminal() {
  if (isatty(STDOUT_FILENO) == 0) return false;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale(value);
    return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return false;
}

}  // namespace

void Table::say(const Context& context) const {
  std::vector<size_t> widths;
  std::vector<std::string> titles;
  for (const Column& column : columns_) {
    widths.push_back(width_of(column.title));
    titles.push_back(column.title);
  }
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string space(widths[i] - width_of(cells[i]), ' ');
      text += columns_[i].right ? "  " + space + cells[i] : "  " + cells[i] + space;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  context.say(heading(context, line(titles)));
  for (const auto& row : rows_) context.say(line(row));
}

std::string bar(const Context& context, double share, size_t width) {
  const bool blocks = utf8_terminal();
  const size_t steps = blocks ? 8 : 1;
  const size_t length =
      std::min(width * steps, size_t(share * double(width) * double(steps) + 0.5));
  std::string text;
  for (size_t i = 0; i < length / steps; ++i) text += blocks ? "█" : "#";
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  text += kEighths[length % steps];
  if (text.empty() || !context.colour()) return text;
  return fmt::format(fg(fmt::terminal_color::cyan), "{}", text);
}

std::string heading(const Context& context, std::string_view text) {
  return context.colour() ? fmt::format(fmt::emphasis::bold, "{}", text) : std::string(text);
}

std::string shown(std::string_view name) {
  std::string quoted = quote(name);
  const bool harmless = !name.empty() && quoted == '"' + std::string(name) + '"';
  return harmless ? std::string(name) : quoted;
}

std::string shown_replica(std::string_view name) {
  constexpr size_t kMost = 100;
  std::string text = escape_controls(name);
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

}  // namespace deltawire::cli
