// Opening a checkpoint that a person named.
#pragma once

#include <filesystem>

#include "deltawire/checkpoint.h"

namespace deltawire {

// Checkpoint::open(), which says what it is when it is something else: a delta, an index.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);

}  // namespace deltawire
