#include "lab/bench/device/cuda/report.h"

#include <fmt/format.h>

namespace deltawire::cli {

void say_rows(const Context& context, const DeviceModel& model) {
  context.say(
      fmt::format("{}, driver {}.{}: {} tensors, {:.3f} B elements of bf16, {:.2f} % changed",
                  model.info.name, model.info.driver / 1000, model.info.driver % 1000 / 10,
                  model.sizes.size(), double(model.num_elements) * 1e-9,
                  100 * double(model.num_changed) / double(model.num_elements)));
  for (const Row& row : model.rows) {
    const std::string ratio = row.bound > 0
                                  ? fmt::format("{:>6.2f} x bound", row.milliseconds / row.bound)
                                  : std::string(14, ' ');
    context.say(
        fmt::format("  {:<44} {:>9.3f} ms {}  {}", row.what, row.milliseconds, ratio, row.note));
  }
}

nlohmann::json report_rows(const DeviceModel& model) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : model.rows) {
    rows.push_back({{"what", row.what},
                    {"milliseconds", row.milliseconds},
                    {"bound_milliseconds", row.bound},
                    {"note", row.note}});
  }
  return {{"device", model.info.name},     {"driver", model.info.driver},
          {"runtime", model.info.runtime}, {"model", model.source},
          {"tensors", model.sizes.size()}, {"elements", model.num_elements},
          {"changed", model.num_changed},  {"rows", rows}};
}

}  // namespace deltawire::cli
