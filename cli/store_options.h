// The options of every verb that opens a store.
#pragma once

#include "cli/command.h"
#include "deltawire/store.h"

namespace deltawire::cli {

// `options` must live until the command line is parsed, and holds the defaults.
void add_store_options(Command* verb, StoreOptions* options);

}  // namespace deltawire::cli
