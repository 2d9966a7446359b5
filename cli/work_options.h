// The options of verbs that work on a chain without its trainer.
#pragma once

#include "cli/command.h"
#include "deltawire/maintain.h"

namespace deltawire::cli {

// --sign-key, --trust, --change-key and --unsigned of what adds to a chain. The places must live
// until the command line is parsed.
void add_key_options(Command* verb, std::filesystem::path* sign_key,
                     std::filesystem::path* trust_key, bool* change_key);

// --work, and the options of keys.
void add_work_options(Command* verb, WorkOptions* work, ChainOptions* keys);

}  // namespace deltawire::cli
