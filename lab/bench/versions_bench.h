// `bench versions`: what the age of a chain and the number of tensors cost. Requests and time to
// find the head and to plan a catch-up on chains of several lengths; bytes and time to parse the
// records of a model of many tensors.
#pragma once

#include "cli/verbs.h"

namespace deltawire::cli {

void add_versions_bench(Command* bench, Context& context, Call* call);

}  // namespace deltawire::cli
