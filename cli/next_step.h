// What to type or do after an error. One table for all verbs; docs/operations.md says more.
#pragma once

#include <string>
#include <string_view>

#include "deltawire/status.h"

namespace deltawire::cli {

// Empty when the message itself says what to do. `verb` is the one that failed, empty if none was
// chosen.
std::string next_step(const Status& status, std::string_view verb);

}  // namespace deltawire::cli
