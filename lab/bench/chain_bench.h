// `bench chain`: from "the step is done" to "the replica holds it", over a folder, over S3, and
// over a wide-area link; against slime's pipeline and a full copy on the same data in the same run.
#pragma once

#include "cli/verbs.h"

namespace deltawire::cli {

void add_chain_bench(Command* bench, Context& context, Call* call);

}  // namespace deltawire::cli
