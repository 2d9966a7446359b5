// A version of slime's first generation: all files of its folder.
#pragma once

#include <memory>

#include "dialect/dialect.h"

namespace deltawire::gen1 {

// Corruption when a tensor is in two files, or a file is of another version than its folder.
Result<std::unique_ptr<ForeignVersion>> open_version(Store& store, uint64_t version);

}  // namespace deltawire::gen1
