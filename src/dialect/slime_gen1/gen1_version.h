// A version of slime's first generation: all files of its folder.
#pragma once

#include <memory>

#include "dialect/dialect.h"

namespace deltawire::gen1 {

// Corruption when a tensor is in two files, or a file is of another version than its folder.
Result<std::unique_ptr<ForeignVersion>> open_version(Store& store, uint64_t version);

// Writes a version of slime's first generation.

// Options: encoding indices (default), deltas or deltas_zstd; buffer_bytes; rank. Of several ranks
// each writes its tensors with a writer of its own; rank 0 finishes last, and writes DONE.
Result<std::unique_ptr<ForeignWriter>> create_version(std::shared_ptr<Store> store,
                                                      const ForeignDraft& draft,
                                                      const ForeignOptions& options);

}  // namespace deltawire::gen1
