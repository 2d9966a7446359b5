// The options of verbs that work on a chain without its trainer.
#pragma once

#include "cli/command.h"
#include "sync/chain_state.h"

namespace deltawire::cli {

void add_work_options(Command* verb, WorkOptions* options);

}  // namespace deltawire::cli
