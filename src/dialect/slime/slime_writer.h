// Writes a slime version. slime_index.h has its files.
#pragma once

#include <memory>

#include "dialect/dialect.h"

namespace deltawire::slime {

// Removes what a writer that was killed left of this version. Memory is bounded by the payloads of
// one part: `buffer_bytes` of tensors, or a larger tensor.
Result<std::unique_ptr<ForeignWriter>> create_writer(std::shared_ptr<Store> store,
                                                     const ForeignDraft& draft,
                                                     const ForeignOptions& options);

}  // namespace deltawire::slime
