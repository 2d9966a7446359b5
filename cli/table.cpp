#include "cli/table.h"

#include <fmt/color.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tensor/text.h"

namespace deltawire::cli {
namespace {

// Characters, not bytes: columns of names line up whatever their script.
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
