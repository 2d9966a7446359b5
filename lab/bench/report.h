// What a case found: a table for people and the same as JSON, and the machine it was found on.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/context.h"

namespace deltawire::cli {

using Json = nlohmann::ordered_json;

// One value of a table: null, with an empty text, where there is none.
struct Cell {
  Json value;
  std::string text;
};

Cell text_cell(const std::string& text);
Cell bytes_cell(uint64_t bytes);                   // 1.21 GB
Cell rate_cell(double bytes_per_second);           // in GB/s
Cell seconds_cell(std::optional<double> seconds);  // 0.21 s
Cell ratio_cell(double a, double b);               // a / b; "-" where b is zero

class BenchTable {
 public:
  struct Column {
    std::string key, head;  // in JSON; for people
  };
  explicit BenchTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  // After an empty line; columns of text to the left, of numbers to the right.
  void say(const Context& context) const;
  Json json() const;  // an object for each row

 private:
  const std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// CPU, architecture, cores, kernels, compiler.
Json this_machine();
void say_machine(const Context& context);

}  // namespace deltawire::cli
