// `bench shards`: a version from trainer ranks to engine ranks, shard to shard, against a broadcast
// of the whole model over the same kind of group.
#pragma once

#include "cli/verbs.h"

namespace deltawire::cli {

void add_shards_bench(Command* bench, Context& context, Call* call);

}  // namespace deltawire::cli
