#include "lab/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cli/units.h"
#include "lab/bench/machine.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

double ratio(double a, double b) { return b == 0 ? 0 : a / b; }

double per_second(const BenchReport& report, double seconds) {
  return ratio(double(report.data->weights_bytes), seconds);
}

std::string threads_name(unsigned threads) {
  return threads == 1 ? "1 thread" : fmt::format("{} threads", threads);
}

const BenchRow* find_row(const std::vector<BenchRow>& rows, std::string_view name) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const BenchRow& row) { return row.name == name; });
  return found == rows.end() || !found->unsupported.empty() ? nullptr : &*found;
}

// ---- ours against slime's

struct Advantage {
  unsigned threads;
  double publish, apply;
};

std::vector<Advantage> advantages(const BenchReport& report) {
  const BenchRow* ours = find_row(report.pipelines, kDigestedTightName);
  const BenchRow* theirs = find_row(report.pipelines, kSlimeName);
  std::vector<Advantage> all;
  if (ours == nullptr || theirs == nullptr) return all;
  for (size_t i = 0; i < std::min(ours->speeds.size(), theirs->speeds.size()); ++i) {
    const Speed &a = ours->speeds[i], &b = theirs->speeds[i];
    all.push_back({a.threads, ratio(b.publish_seconds, a.publish_seconds),
                   ratio(b.apply_seconds, a.apply_seconds)});
  }
  return all;
}

double size_advantage(const BenchReport& report) {
  const BenchRow* ours = find_row(report.pipelines, kDigestedTightName);
  const BenchRow* theirs = find_row(report.pipelines, kSlimeName);
  if (ours == nullptr || theirs == nullptr) return 0;
  return ratio(double(theirs->payload_bytes), double(ours->payload_bytes));
}

// ---- for machines

Json number_or_null(const std::optional<uint64_t>& value) { return value ? Json(*value) : Json(); }
Json ratio_or_null(double a, double b) { return b == 0 ? Json() : Json(a / b); }

Json rows_to_json(const BenchReport& report, const std::vector<BenchRow>& rows) {
  Json list = Json::array();
  for (const BenchRow& row : rows) {
    if (!row.unsupported.empty()) {
      list.push_back({{"name", row.name}, {"unsupported", row.unsupported}});
      continue;
    }
    Json speeds = Json::array();
    for (const Speed& speed : row.speeds) {
      speeds.push_back({{"threads", speed.threads},
                        {"encode_bytes_per_s", per_second(report, speed.publish_seconds)},
                        {"apply_bytes_per_s", per_second(report, speed.apply_seconds)},
                        {"encode_extra_bytes", number_or_null(speed.publish_extra_bytes)},
                        {"apply_extra_bytes", number_or_null(speed.apply_extra_bytes)}});
    }
    list.push_back(
        {{"name", row.name},
         {"bytes", row.payload_bytes},
         {"bytes_per_changed",
          ratio_or_null(double(row.payload_bytes), double(report.data->num_changed))},
         {"over_bound", ratio_or_null(double(row.payload_bytes), report.bound.conditioned())},
         {"speeds", speeds}});
  }
  return list;
}

Json bound_to_json(const Bound& bound, double changed) {
  return {{"bytes", bound.conditioned()},
          {"bytes_per_changed", ratio_or_null(bound.conditioned(), changed)},
          {"positions_bytes", bound.positions},
          {"values_bytes", bound.values},
          {"unconditioned_bytes", bound.unconditioned()},
          {"unconditioned_bytes_per_changed", ratio_or_null(bound.unconditioned(), changed)},
          {"unconditioned_positions_bytes", bound.plain_positions}};
}

Json bandwidths_to_json(const std::vector<Bandwidth>& bandwidths) {
  Json list = Json::array();
  for (const Bandwidth& one : bandwidths) {
    list.push_back({{"threads", one.threads},
                    {"read_bytes_per_s", one.read},
                    {"diff_same_bytes_per_s", one.diff_same},
                    {"diff_same_of_read", ratio(one.diff_same, one.read)},
                    {"diff_changed_bytes_per_s", one.diff_changed},
                    {"diff_changed_of_read", ratio(one.diff_changed, one.read)}});
  }
  return list;
}

// ---- for people

void say_head(const BenchReport& report, const Context& context) {
  const Machine machine = this_machine();
  const BenchData& data = *report.data;
  const double changed = double(data.num_changed);
  context.say(fmt::format("machine   {}, {}, {} core{}; kernels {}; {}", machine.cpu, machine.arch,
                          machine.cores, machine.cores == 1 ? "" : "s", machine.kernels,
                          machine.compiler));
  context.say(fmt::format("data      {}", data.source));
  context.say(fmt::format("          {} elements in {} tensors, {}; {} changed ({})",
                          human_count(data.num_elements), data.tensors.size(),
                          human_bytes(double(data.weights_bytes)), human_count(data.num_changed),
                          percent(data.density())));
  if (data.num_skipped != 0) {
    context.say(fmt::format("          {} tensor{} left out: no counterpart of the same form",
                            data.num_skipped, data.num_skipped == 1 ? "" : "s"));
  }
  const double share = ratio(double(data.huge_page_bytes), 3 * double(data.weights_bytes));
  context.say(
      fmt::format("memory    old, new and work copied to anonymous memory, {:.0f} % in huge "
                  "pages",
                  100 * std::min(share, 1.0)));
  if (data.num_changed == 0) return;
  const Bound& bound = report.bound;
  context.say(
      fmt::format("bound     {:.0f} bytes, {:.3f} per changed element: positions {:.3f}, "
                  "values {:.3f}, both given the old exponent",
                  bound.conditioned(), bound.conditioned() / changed, bound.positions / changed,
                  bound.values / changed));
  context.say(fmt::format("          {:.3f} with positions that know only how many changed",
                          bound.unconditioned() / changed));
  if (report.file_bytes) {
    context.say(
        fmt::format("file      {} bytes, {:.3f} per changed element, {:.3f} x the bound: a "
                    "whole delta on disk",
                    *report.file_bytes, double(*report.file_bytes) / changed,
                    double(*report.file_bytes) / bound.conditioned()));
  }
}

void say_bandwidths(const BenchReport& report, const Context& context) {
  if (report.bandwidths.empty()) return;
  const auto line = [&](std::string_view name, double Bandwidth::*rate, bool share) {
    std::string text = fmt::format("{:<24}", name);
    for (const Bandwidth& one : report.bandwidths) {
      text += fmt::format("{:>10.1f} GB/s", one.*rate / 1e9);
      text += share ? fmt::format(" {:>4.0f} %", 100 * ratio(one.*rate, one.read))
                    : std::string(7, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    context.say(text);
  };
  std::string head = fmt::format("\n{:<24}", "both inputs");
  for (const Bandwidth& one : report.bandwidths) {
    head += fmt::format("{:>15}       ", threads_name(one.threads));
  }
  head.erase(head.find_last_not_of(' ') + 1);
  context.say(head);
  line("read", &Bandwidth::read, false);
  line("diff, nothing changed", &Bandwidth::diff_same, true);
  if (report.data->num_changed == 0) return;  // the line above says it
  line(fmt::format("diff, {} changed", percent(report.data->density())), &Bandwidth::diff_changed,
       true);
}

std::string ratio_or_dash(double a, double b) {
  return b == 0 ? "-" : fmt::format("{:.3f}", a / b);
}

std::string memory(const std::optional<uint64_t>& bytes) {
  return bytes ? human_bytes(double(*bytes)) : "-";
}

// Columns of speeds: one thread and all, or only one thread.
size_t speed_columns(const BenchReport& report) { return std::min<size_t>(report.threads, 2); }
size_t speed_width(const BenchReport& report) { return speed_columns(report) == 1 ? 13 : 8; }

std::string row_line(const BenchReport& report, const BenchRow& row) {
  std::string text = fmt::format("{:<16}", row.name);
  if (!row.unsupported.empty()) return text + "  unsupported: " + row.unsupported;
  const double bytes = double(row.payload_bytes);
  text += fmt::format("{:>12}{:>9}{:>9}", row.payload_bytes,
                      ratio_or_dash(bytes, double(report.data->num_changed)),
                      ratio_or_dash(bytes, report.bound.conditioned()));
  if (row.speeds.empty()) return text;
  for (const auto seconds : {&Speed::publish_seconds, &Speed::apply_seconds}) {
    text += "  ";
    for (const Speed& speed : row.speeds) {
      text +=
          fmt::format("{:>{}.2f}", per_second(report, speed.*seconds) / 1e9, speed_width(report));
    }
  }
  const Speed& last = row.speeds.back();
  return text + fmt::format("  {:>9}{:>9}", memory(last.publish_extra_bytes),
                            memory(last.apply_extra_bytes));
}

void say_rows(const BenchReport& report, const std::vector<BenchRow>& rows,
              const std::string& title, const std::string& first, const Context& context) {
  if (rows.empty()) return;
  std::string head = fmt::format("\n{:<16}{:>12}{:>9}{:>9}", title, "", "bytes/", "times");
  std::string head2 = fmt::format("{:<16}{:>12}{:>9}{:>9}", "", "bytes", "change", "bound");
  if (!report.bandwidths.empty()) {
    for (const std::string& what : {first + " GB/s", std::string("apply GB/s")}) {
      head += fmt::format("  {:>{}}", what, speed_columns(report) * speed_width(report));
      head2 += "  ";
      for (const Bandwidth& one : report.bandwidths) {
        head2 += fmt::format("{:>{}}", fmt::format("{} thr", one.threads), speed_width(report));
      }
    }
    head += fmt::format("  {:>18}", "extra memory");
    head2 += fmt::format("  {:>9}{:>9}", first, "apply");
  }
  context.say(head);
  context.say(head2);
  for (const BenchRow& row : rows) context.say(row_line(report, row));
}

void say_advantages(const BenchReport& report, const Context& context) {
  const double size = size_advantage(report);
  if (size == 0) return;
  context.say(
      fmt::format("\n{} against {}: {:.2f} times smaller", kDigestedTightName, kSlimeName, size));
  for (const Advantage& one : advantages(report)) {
    context.say(fmt::format("  {:<12} publish {:.2f} times as fast, apply {:.2f} times",
                            threads_name(one.threads), one.publish, one.apply));
  }
}

void say_notes(const BenchReport& report, const Context& context) {
  context.say(
      "\nBytes are payloads, without names and headers. Every result was compared with the "
      "new weights.");
  if (!report.pipelines.empty()) {
    context.say(
        "trl-v1: int32 positions and values. slime-gen1: u16 or u32 gaps and values. slime: "
        "XOR, zstd level 1\nand xxh3-128 per tensor. deltawire: tight, and sum128 per "
        "tensor. The peers' pipelines are written\nhere in C++ that keeps its buffers, "
        "one thread per tensor, with none of the cost of their Python.");
  }
  if (report.bandwidths.empty()) return;
  context.say(fmt::format(
      "Speeds are of weights (the new checkpoint's bytes), the best of {} or more. Extra "
      "memory: how far resident\nmemory rose in the first, on {}; encoding "
      "counts the payloads it leaves, applying has them already.",
      report.repeat, threads_name(report.threads)));
}

}  // namespace

Json to_json(const BenchReport& report) {
  const Machine machine = this_machine();
  const BenchData& data = *report.data;
  Json against = Json::object();
  if (const double size = size_advantage(report); size != 0) {
    against["size"] = size;
    against["speeds"] = Json::array();
    for (const Advantage& one : advantages(report)) {
      against["speeds"].push_back(
          {{"threads", one.threads}, {"publish", one.publish}, {"apply", one.apply}});
    }
  }
  return {
      {"machine",
       {{"cpu", machine.cpu},
        {"arch", machine.arch},
        {"cores", machine.cores},
        {"kernels", machine.kernels},
        {"compiler", machine.compiler}}},
      {"data",
       {{"source", data.source},
        {"tensors", data.tensors.size()},
        {"tensors_left_out", data.num_skipped},
        {"elements", data.num_elements},
        {"changed", data.num_changed},
        {"density", data.density()},
        {"weights_bytes", data.weights_bytes},
        {"huge_page_bytes", data.huge_page_bytes}}},
      {"threads", report.threads},
      {"repeat", report.repeat},
      {"bound", bound_to_json(report.bound, double(data.num_changed))},
      {"file_bytes", number_or_null(report.file_bytes)},
      {"file_over_bound",
       report.file_bytes ? ratio_or_null(double(*report.file_bytes), report.bound.conditioned())
                         : Json()},
      {"bandwidths", bandwidths_to_json(report.bandwidths)},
      {"codecs", rows_to_json(report, report.codecs)},
      {"pipelines", rows_to_json(report, report.pipelines)},
      {"against_slime", against},
  };
}

void say_report(const BenchReport& report, const Context& context) {
  say_head(report, context);
  say_bandwidths(report, context);
  say_rows(report, report.codecs, "codec", "encode", context);
  say_rows(report, report.pipelines, "pipeline", "publish", context);
  say_advantages(report, context);
  say_notes(report, context);
}

}  // namespace deltawire::cli
