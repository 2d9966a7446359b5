// The options of verbs that work on a chain without its trainer.
#pragma once

#include "cli/command.h"
#include "deltawire/maintain.h"

namespace deltawire::cli {

// --sign-key, --trust, --change-key and --unsigned of what adds to a chain. `keys` must live until
// the command line is parsed.
void add_key_options(Command* verb, Keys* keys);

// --work, and the options of keys.
void add_work_options(Command* verb, WorkOptions* work, Keys* keys);

}  // namespace deltawire::cli
