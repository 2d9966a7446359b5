// Kinds of stores that layers above add to open_store(), and faults that tests put around them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "deltawire/store.h"

namespace deltawire {

using OpenScheme = std::function<Result<std::shared_ptr<Store>>(const std::string& url,
                                                                const StoreOptions& options)>;
// `scheme` with its "://". A second time it is replaced. Thread-safe.
void register_store_scheme(const std::string& scheme, OpenScheme open);

// StoreOptions::wrap for --inject (docs/testing.md); null when the list is empty. A bad list is
// reported when the store is opened, and is Unsupported where the build has no faults.
std::function<Result<std::shared_ptr<Store>>(std::shared_ptr<Store>)> inject_faults(
    std::string spec);

}  // namespace deltawire
