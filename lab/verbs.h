// Verbs to try deltawire out and to measure it, each a folder of its name.
#pragma once

#include <vector>

#include "cli/verbs.h"

namespace deltawire::cli {

void add_demo(Command& app, Context& context, Call* call);
void add_simulate(Command& app, Context& context, Call* call);
void add_bench(Command& app, Context& context, Call* call);

// In the order of --help.
inline std::vector<AddVerb> lab_verbs() { return {add_demo, add_simulate, add_bench}; }

}  // namespace deltawire::cli
