// Kinds of stores that layers above add to open_store().
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
// Null when the URL is of no registered scheme.
OpenScheme find_store_scheme(const std::string& url);

}  // namespace deltawire
