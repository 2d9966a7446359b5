// For tests: stores that fail and lie, by --inject.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// StoreOptions::wrap for a list of faults (docs/testing.md); null when it is empty. A bad one is
// told when the store is opened, and Unsupported where the build has no faults.
std::function<Result<std::shared_ptr<Store>>(std::shared_ptr<Store>)> inject_faults(
    std::string spec);

}  // namespace deltawire
