// Where an export goes: which chain it is of, so that two never mix.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bridge/export_work.h"
#include "deltawire/chain.h"
#include "deltawire/store.h"
#include "dialect/dialect.h"

namespace deltawire {

// An object beside the versions, which readers of the dialect pass over.
inline constexpr std::string_view kExportMarker = "deltawire-export.json";

// Conflict when the target is of another run or dialect, or holds versions that no export wrote.
Status check_target(const Chain& chain, const Dialect& dialect, Store& target,
                    const std::vector<uint64_t>& versions);
// Says whose it is; before the first version.
Status mark_target(const Chain& chain, const Dialect& dialect, Store& target);

// Whether a version that is there is the chain's, as far as its digests tell: `held` is the model
// at that version. Conflict names the tensor.
Status check_exported(const ForeignVersion& version, const Checkpoint& held, const Store& target,
                      ThreadPool* pool);

}  // namespace deltawire
