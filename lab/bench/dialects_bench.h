// `bench dialects`: writing and applying other projects' files, against what their own Python does
// with the same files on the same machine.
#pragma once

#include "cli/verbs.h"

namespace deltawire::cli {

void add_dialects_bench(Command* bench, Context& context, Call* call);

}  // namespace deltawire::cli
