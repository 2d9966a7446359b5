// Emits log events. deltawire/progress.h sets the sink that receives them.
#pragma once

#include <initializer_list>
#include <string_view>

#include "deltawire/progress.h"

namespace deltawire {

// log_event(LogLevel::kInfo, "pull.committed", {{"version", 12}, {"bytes", bytes}});
// Cheap when the level is off. Any thread.
void log_event(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});
bool log_enabled(LogLevel level) noexcept;

}  // namespace deltawire
