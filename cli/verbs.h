// Every verb of the CLI: a file, or a folder of its name; registered here.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/context.h"

namespace deltawire::cli {

// Adds its subcommand to `app` and, when that is chosen, sets `*run` to what it does.
using Run = std::function<int()>;
using AddVerb = void (*)(CLI::App& app, Context& context, Run* run);

void add_diff(CLI::App& app, Context& context, Run* run);
void add_apply(CLI::App& app, Context& context, Run* run);
void add_verify(CLI::App& app, Context& context, Run* run);
void add_inspect(CLI::App& app, Context& context, Run* run);
void add_publish(CLI::App& app, Context& context, Run* run);
void add_anchor(CLI::App& app, Context& context, Run* run);
void add_compact(CLI::App& app, Context& context, Run* run);
void add_bench(CLI::App& app, Context& context, Run* run);
void add_simulate(CLI::App& app, Context& context, Run* run);
void add_log(CLI::App& app, Context& context, Run* run);
void add_show(CLI::App& app, Context& context, Run* run);
void add_plan(CLI::App& app, Context& context, Run* run);
void add_pin(CLI::App& app, Context& context, Run* run);
void add_unpin(CLI::App& app, Context& context, Run* run);
void add_gc(CLI::App& app, Context& context, Run* run);
void add_fsck(CLI::App& app, Context& context, Run* run);
void add_pull(CLI::App& app, Context& context, Run* run);
void add_follow(CLI::App& app, Context& context, Run* run);
void add_status(CLI::App& app, Context& context, Run* run);
void add_keygen(CLI::App& app, Context& context, Run* run);
void add_kernels(CLI::App& app, Context& context, Run* run);
void add_demo(CLI::App& app, Context& context, Run* run);
void add_completion(CLI::App& app, Context& context, Run* run);
void add_help(CLI::App& app, Context& context, Run* run);

// A subcommand with its examples and the flags that all verbs take.
CLI::App* make_verb(CLI::App& app, Context& context, const std::string& name,
                    const std::string& description, const std::string& examples);
void add_threads(CLI::App* verb, Context& context);

}  // namespace deltawire::cli
