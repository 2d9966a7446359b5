// Every verb of daily use: a file, or a folder of its name; registered here. Those to try it out
// and measure are in lab/.
#pragma once

#include <functional>

#include "cli/command.h"
#include "cli/context.h"

namespace deltawire::cli {

// Adds its subcommand to `app` and, when that is chosen, sets `*call` to what it does.
using Call = std::function<int()>;
using AddVerb = void (*)(Command& app, Context& context, Call* call);

void add_diff(Command& app, Context& context, Call* call);
void add_apply(Command& app, Context& context, Call* call);
void add_verify(Command& app, Context& context, Call* call);
void add_inspect(Command& app, Context& context, Call* call);
void add_publish(Command& app, Context& context, Call* call);
void add_import(Command& app, Context& context, Call* call);
void add_export(Command& app, Context& context, Call* call);
void add_mirror(Command& app, Context& context, Call* call);
void add_anchor(Command& app, Context& context, Call* call);
void add_compact(Command& app, Context& context, Call* call);
void add_log(Command& app, Context& context, Call* call);
void add_show(Command& app, Context& context, Call* call);
void add_plan(Command& app, Context& context, Call* call);
void add_plan_shards(Command& app, Context& context, Call* call);
void add_pin(Command& app, Context& context, Call* call);
void add_unpin(Command& app, Context& context, Call* call);
void add_forget(Command& app, Context& context, Call* call);
void add_gc(Command& app, Context& context, Call* call);
void add_fsck(Command& app, Context& context, Call* call);
void add_pull(Command& app, Context& context, Call* call);
void add_follow(Command& app, Context& context, Call* call);
void add_status(Command& app, Context& context, Call* call);
void add_keygen(Command& app, Context& context, Call* call);
void add_kernels(Command& app, Context& context, Call* call);
void add_completion(Command& app, Context& context, Call* call);
void add_help(Command& app, Context& context, Call* call);

// A subcommand with its examples and the flags that all verbs take.
Command* make_verb(Command& app, Context& context, const std::string& name,
                   const std::string& description, const std::string& examples);
void add_threads(Command* verb, Context& context);

}  // namespace deltawire::cli
