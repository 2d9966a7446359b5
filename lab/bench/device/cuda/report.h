// The rows of a bench as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "lab/bench/device/cuda/device_model.h"

namespace deltawire::cli {

void say_rows(const Context& context, const DeviceModel& model);
nlohmann::json report_rows(const DeviceModel& model);

}  // namespace deltawire::cli
