// Where verbs keep what they can make again.
#pragma once

#include <filesystem>
#include <string>

#include "deltawire/status.h"

namespace deltawire::cli {

// Where a work folder lies unless it is given a place: ~/.cache/deltawire/NAME.
Result<std::filesystem::path> cache_folder(const std::string& name);

}  // namespace deltawire::cli
