#include "cli/inspect/movement.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/table.h"
#include "cli/units.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kLargest = ChangeStatistics::kLargestStep;
constexpr size_t kBarWidth = 30;

double share_of(uint64_t count, uint64_t total) {
  return total == 0 ? 0 : double(count) / double(total);
}

void say_steps(const Context& context, const ChangeStatistics& statistics) {
  const bool is_float = float_form(statistics.dtype).has_value();
  Table table({{is_float ? "ULPs" : "step"},
               {is_float ? "away from 0" : "up"},
               {is_float ? "towards 0" : "down"},
               {"share"},
               {"", false}});
  const auto add = [&](std::string name, std::string up, std::string down, uint64_t count) {
    if (count == 0) return;
    const double share = share_of(count, statistics.num_changed);
    table.add({std::move(name), std::move(up), std::move(down),
               fmt::format("{:.2f} %", share * 100), bar(context, share, kBarWidth)});
  };
  for (int step = 1; step <= kLargest; ++step) {
    const uint64_t up = statistics.steps[size_t(kLargest + step)];
    const uint64_t down = statistics.steps[size_t(kLargest - step)];
    add(std::to_string(step), human_count(up), human_count(down), up + down);
  }
  add("more", human_count(statistics.num_jumps_up), human_count(statistics.num_jumps_down),
      statistics.num_jumps_up + statistics.num_jumps_down);
  add("sign flip", "", human_count(statistics.num_sign_flips), statistics.num_sign_flips);
  context.say("");
  context.say(fmt::format("How far {} {} elements moved:", human_count(statistics.num_changed),
                          dtype_name(statistics.dtype)));
  table.say(context);
}

void say_classes(const Context& context, const ChangeStatistics& statistics) {
  Table table({{"exponent"}, {"elements"}, {"share"}, {"changed"}, {"P(changed)"}, {"", false}});
  constexpr double kLeast = 0.00001;  // what is rarer shares a line
  uint64_t rare_elements = 0, rare_changed = 0;
  const auto add = [&](std::string name, uint64_t elements, uint64_t changed) {
    const double p = share_of(changed, elements);
    table.add({std::move(name), human_count(elements),
               fmt::format("{:.3f} %", 100 * share_of(elements, statistics.num_elements)),
               human_count(changed), fmt::format("{:.5f}", p), bar(context, p, kBarWidth)});
  };
  for (size_t field = statistics.elements.size(); field-- > 0;) {
    if (share_of(statistics.elements[field], statistics.num_elements) < kLeast) {
      rare_elements += statistics.elements[field];
      rare_changed += statistics.changed[field];
    } else {
      add(exponent_name(statistics.dtype, field), statistics.elements[field],
          statistics.changed[field]);
    }
  }
  if (rare_elements != 0) add("others", rare_elements, rare_changed);
  context.say("");
  context.say(
      fmt::format("Changes of {} elements by their old exponent:", dtype_name(statistics.dtype)));
  table.say(context);
}

}  // namespace

void say_movement(const Context& context, const ChangeStatistics& statistics) {
  if (statistics.num_changed == 0) return;
  say_steps(context, statistics);
  if (!statistics.elements.empty()) say_classes(context, statistics);
}

Json movement_json(const ChangeStatistics& statistics) {
  Json json = {{"dtype", dtype_name(statistics.dtype)},   {"elements", statistics.num_elements},
               {"changed", statistics.num_changed},       {"steps", Json::object()},
               {"jumps_up", statistics.num_jumps_up},     {"jumps_down", statistics.num_jumps_down},
               {"sign_flips", statistics.num_sign_flips}, {"exponents", Json::array()}};
  for (int step = -kLargest; step <= kLargest; ++step) {
    const uint64_t count = statistics.steps[size_t(step + kLargest)];
    if (step != 0) json["steps"][std::to_string(step)] = count;
  }
  for (size_t field = 0; field < statistics.elements.size(); ++field) {
    const uint64_t elements = statistics.elements[field], changed = statistics.changed[field];
    if (elements == 0) continue;
    json["exponents"].push_back({{"exponent", exponent_json(statistics.dtype, field)},
                                 {"elements", elements},
                                 {"changed", changed},
                                 {"p_changed", share_of(changed, elements)}});
  }
  return json;
}

}  // namespace deltawire::cli
