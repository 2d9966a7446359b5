#include "lab/bench/report.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <string_view>

#include "base/thread_pool.h"
#include "cli/table.h"
#include "kernels/kernels.h"

namespace deltawire::cli {
namespace {

// Arm's /proc/cpuinfo has numbers only.
std::string arm_core(const std::string& implementer, const std::string& part) {
  constexpr struct {
    std::string_view part, name;
  } kCores[] = {{"0xd0c", "Neoverse-N1"}, {"0xd40", "Neoverse-V1"}, {"0xd49", "Neoverse-N2"},
                {"0xd4f", "Neoverse-V2"}, {"0xd83", "Neoverse-V3"}, {"0xd8e", "Neoverse-N3"}};
  for (const auto& core : kCores) {
    if (implementer == "0x41" && core.part == part) return std::string(core.name);
  }
  return "implementer " + implementer + " part " + part;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string implementer, part;
  for (std::string line; std::getline(info, line) && !line.empty();) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) implementer = value;
    if (line.starts_with("CPU part")) part = value;
  }
  return part.empty() ? "unknown" : arm_core(implementer, part);
}

}  // namespace

Cell text_cell(const std::string& text) { return {text, text}; }
Cell bytes_cell(uint64_t bytes) { return {bytes, human_bytes(double(bytes))}; }
Cell rate_cell(double bytes_per_second) {
  return {bytes_per_second, fmt::format("{:.2f}", bytes_per_second / 1e9)};
}
Cell seconds_cell(std::optional<double> value) {
  return value ? Cell{*value, seconds(*value)} : Cell{};
}
Cell ratio_cell(double a, double b) {
  return b == 0 ? Cell{{}, "-"} : Cell{a / b, fmt::format("{:.3f}", a / b)};
}

void BenchTable::say(const Context& context) const {
  std::vector<Table::Column> columns;
  for (size_t c = 0; c < columns_.size(); ++c) {
    columns.push_back({columns_[c].head, rows_.empty() || !rows_[0][c].value.is_string()});
  }
  Table table(std::move(columns));
  for (const auto& row : rows_) {
    std::vector<std::string> texts;
    for (const Cell& cell : row) texts.push_back(cell.text);
    table.add(std::move(texts));
  }
  context.say("");
  table.say(context);
}

Json BenchTable::json() const {
  Json list = Json::array();
  for (const auto& row : rows_) {
    Json object = Json::object();
    for (size_t c = 0; c < columns_.size(); ++c) object[columns_[c].key] = row[c].value;
    list.push_back(std::move(object));
  }
  return list;
}

Json this_machine() {
  utsname names{};
#ifdef __clang__
  constexpr const char* kCompiler = "clang " __clang_version__;
#else
  constexpr const char* kCompiler = "gcc " __VERSION__;
#endif
  return {{"cpu", cpu_name()},
          {"arch", uname(&names) == 0 ? names.machine : "unknown"},
          {"cores", ThreadPool(0).num_workers()},
          {"kernels", kernels().name},
          {"compiler", kCompiler}};
}

void say_machine(const Context& context) {
  const Json machine = this_machine();
  const auto text = [&](const char* key) { return machine[key].get<std::string>(); };
  context.say(fmt::format("machine   {}, {}, {}; kernels {}; {}", text("cpu"), text("arch"),
                          plural(machine["cores"].get<uint64_t>(), "core"), text("kernels"),
                          text("compiler")));
}

}  // namespace deltawire::cli
