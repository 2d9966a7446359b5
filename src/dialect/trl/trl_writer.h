// Writes a version as TRL does. trl_format.h has its files.
#pragma once

#include <memory>

#include "dialect/dialect.h"

namespace deltawire::trl {

// Options: encoding gap_delta (default), raw or v1. A whole version becomes an anchor, any other a
// delta.
Result<std::unique_ptr<ForeignWriter>> create_version(std::shared_ptr<Store> store,
                                                      const ForeignDraft& draft,
                                                      const ForeignOptions& options);

}  // namespace deltawire::trl
