// What `publish` says of a version it made.
#pragma once

#include "cli/context.h"
#include "deltawire/publisher.h"

namespace deltawire::cli {

nlohmann::ordered_json to_json(const PublishReport& report);
void say_report(const Context& context, const PublishReport& report);
// One line, for those who publish many.
std::string one_line(const PublishReport& report);

}  // namespace deltawire::cli
