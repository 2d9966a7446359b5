// What `publish` says of a version it made.
#pragma once

#include "cli/context.h"
#include "deltawire/publisher.h"

namespace deltawire::cli {

inline constexpr std::string_view kFloat32Hint =
    "most weights are float32, and most of them changed; if engines serve bfloat16, save the "
    "checkpoints in bfloat16: far fewer change";

nlohmann::ordered_json to_json(const PublishReport& report);
void say_report(const Context& context, const PublishReport& report);
// One line, for those who publish many.
std::string one_line(const PublishReport& report);

}  // namespace deltawire::cli
