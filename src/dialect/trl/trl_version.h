// Opens and writes versions of TRL's. trl_format.h has their files.
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

// Options: encoding gap_delta (default), raw or v1. A whole version becomes an anchor, any other a
// delta.
Result<std::unique_ptr<ForeignWriter>> create_version(std::shared_ptr<Store> store,
                                                      const ForeignDraft& draft,
                                                      const ForeignOptions& options);

}  // namespace deltawire::trl
