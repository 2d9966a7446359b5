// Opens a version of TRL's. trl_format.h has its files.
#pragma once

#include <memory>
#include <vector>

#include "dialect/dialect.h"

namespace deltawire::trl {

// Those with an anchor or a delta, ascending.
Result<std::vector<uint64_t>> list_versions(Store& store);

// TRL writes an anchor or a delta, never both. Where both are there, the delta is opened if the
// version before is there too: it is what followers need, and small. Otherwise the anchor.
Result<std::unique_ptr<ForeignVersion>> open_version(Store& store, uint64_t version);

}  // namespace deltawire::trl
