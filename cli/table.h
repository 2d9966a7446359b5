// Columns, bars and names on a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/context.h"

namespace deltawire::cli {

// Rows of text under titles; numbers to the right. Lines have no space at their end.
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

// A name from a file: as it is, or quoted and escaped when it could harm a terminal.
std::string shown(std::string_view name);

// A replica's name, which whoever may write to the store chooses: the same, and not too long.
std::string shown_replica(std::string_view name);

}  // namespace deltawire::cli
