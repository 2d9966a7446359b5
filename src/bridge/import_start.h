// Where the import of a source into an empty store begins.
#pragma once

#include <cstdint>
#include <optional>

#include "base/thread_pool.h"
#include "bridge/bridge.h"
#include "dialect/dialect.h"

namespace deltawire {

struct ImportStart {
  uint64_t version = 0;  // the chain's first
  bool from_base =
      false;  // it is the base; else the source's version of that number, which is whole
};

// None: the source has nothing yet to begin with. With a base, the first version is tried on it
// before anything is committed: a run that began with a wrong one could never go on.
Result<std::optional<ImportStart>> choose_start(const Dialect& dialect, Store& source,
                                                const ImportOptions& options, ThreadPool* pool);

}  // namespace deltawire
