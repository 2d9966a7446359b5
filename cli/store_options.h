// The options of every verb that opens a store.
#pragma once

#include <CLI/CLI.hpp>

#include "deltawire/store.h"

namespace deltawire::cli {

// `options` must live until the command line is parsed, and holds the defaults.
void add_store_options(CLI::App* verb, StoreOptions* options);

}  // namespace deltawire::cli
