// Columns, bars and names on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cli/context.h"
#include "deltawire/status.h"

namespace deltawire::cli {

// Numbers for people.
std::string human_bytes(double bytes);    // "1.21 GB": powers of ten, as links and disks have them
std::string human_count(uint64_t count);  // "12,345,678"
std::string plural(uint64_t count, std::string_view noun);  // "1 file", "1,200 files"
std::string percent(double share);                          // "1.204 %"
std::string seconds(double value);                          // "0.21 s"
std::string age_text(int64_t seconds);                      // "12 min ago"

inline double ratio(uint64_t a, uint64_t b) { return b == 0 ? 0 : double(a) / double(b); }

// "100M", "1.7B", "64MiB", "512": decimal suffixes K M G B T, binary with "i"; a trailing "B" after
// one of them is ignored, alone it means billions.
Result<uint64_t> parse_count(std::string_view text);
// "256MiB", "4kB", "512": the same for bytes, where a trailing "B" alone means just those.
Result<uint64_t> parse_bytes(std::string_view text);

// "90s", "30m", "6h", "2d", "90": seconds.
Result<uint64_t> parse_duration(std::string_view text);

// Rows under titles; numbers are aligned right. Lines have no trailing spaces.
class Table {
 public:
  struct Column {
    std::string title;
    bool right = true;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void say(const Context& context) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// `share` of 1 as a bar of `width` characters: blocks on a UTF-8 terminal, '#' elsewhere.
std::string bar(const Context& context, double share, size_t width);

// A heading: bold where the terminal shows it.
std::string heading(const Context& context, std::string_view text);

// A name from a file, quoted and escaped if it could control a terminal.
std::string shown(std::string_view name);

// A replica's name, escaped likewise and shortened, since anyone who can write to the store chooses
// it.
std::string shown_replica(std::string_view name);

}  // namespace deltawire::cli
