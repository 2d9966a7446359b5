// The verbs of daily use, each in a file or folder of its name. Verbs for trying and measuring are
// in lab/.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

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
void add_serve(Command& app, Context& context, Call* call);
void add_mirror(Command& app, Context& context, Call* call);
void add_compact(Command& app, Context& context, Call* call);
void add_log(Command& app, Context& context, Call* call);
void add_pin(Command& app, Context& context, Call* call);
void add_gc(Command& app, Context& context, Call* call);
void add_fsck(Command& app, Context& context, Call* call);
void add_pull(Command& app, Context& context, Call* call);
void add_follow(Command& app, Context& context, Call* call);
void add_status(Command& app, Context& context, Call* call);
void add_doctor(Command& app, Context& context, Call* call);
void add_keygen(Command& app, Context& context, Call* call);

// Runs the program and returns the exit status. `lab`: the verbs of lab/, which not every build
// has; a build without them says where to get them.
int run_program(int argc, char** argv, const std::vector<AddVerb>& lab);

// A subcommand with its examples and the flags that all verbs take.
Command* make_verb(Command& app, Context& context, const std::string& name,
                   const std::string& description, const std::string& examples);
void add_threads(Command* verb, Context& context);

// The arguments of a verb, which live as long as it does: `run` gets them when it is chosen, and
// returns an exit status, or a Status that becomes one.
template <class Arguments, class Outcome>
std::remove_const_t<Arguments>* set_call(Command* verb, const Context& context, Call* call,
                                         Outcome (*run)(const Context&, Arguments&)) {
  auto arguments = std::make_shared<std::remove_const_t<Arguments>>();
  verb->callback([&context, call, run, arguments] {
    *call = [&context, run, arguments]() -> int {
      if constexpr (std::is_same_v<Outcome, Status>) {
        return context.finish(run(context, *arguments));
      } else {
        return run(context, *arguments);
      }
    };
  });
  return arguments.get();
}

}  // namespace deltawire::cli
