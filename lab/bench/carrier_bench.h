// `bench carrier`: how fast a group of ranks on this machine gives bytes to each other, against
// what copying them costs.
#pragma once

#include "cli/verbs.h"

namespace deltawire::cli {

void add_carrier_bench(Command* bench, Context& context, Call* call);

}  // namespace deltawire::cli
