// The program `deltawire`, from its arguments to its exit status.
#pragma once

#include <vector>

#include "cli/verbs.h"

namespace deltawire::cli {

// What main() does. `lab` are the verbs to try it out and measure, which not every build has: the
// program knows their names, and says where they are to be had.
int run_program(int argc, char** argv, const std::vector<AddVerb>& lab);

}  // namespace deltawire::cli
