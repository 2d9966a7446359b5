// The options of every verb that opens a store.
#pragma once

#include <string>

#include "cli/command.h"
#include "deltawire/store.h"

namespace deltawire::cli {

// `options` must live until the command line is parsed, and holds the defaults. A verb with a
// second store gives its options a prefix ("dest-") and a heading.
void add_store_options(Command* verb, StoreOptions* options, const std::string& prefix = "",
                       const std::string& heading = "Store");

}  // namespace deltawire::cli
