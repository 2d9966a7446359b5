// The options of verbs that work on a chain without its trainer.
#pragma once

#include <CLI/CLI.hpp>

#include "sync/chain_state.h"

namespace deltawire::cli {

void add_work_options(CLI::App* verb, WorkOptions* options);

}  // namespace deltawire::cli
