// Opens a slime version. slime_index.h has its files.
#pragma once

#include <memory>

#include "dialect/dialect.h"

namespace deltawire::slime {

// NotFound when the folder is not there or has no index, which is written last.
Result<std::unique_ptr<ForeignVersion>> open_version(Store& store, uint64_t version);

}  // namespace deltawire::slime
