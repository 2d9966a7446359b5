// Change statistics for people and for machines.
#pragma once

#include "cli/context.h"
#include "cli/inspect/changes.h"

namespace deltawire::cli {

void say_movement(const Context& context, const ChangeStatistics& statistics);
nlohmann::ordered_json movement_json(const ChangeStatistics& statistics);

}  // namespace deltawire::cli
