// `deltawire help VERB`: the same as `deltawire VERB --help`, for those who try that first.
#include <fmt/format.h>

#include "cli/options.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

std::string help_of(const Command& app, const std::string& name) {
  for (const auto& verb : app.verbs()) {
    if (verb->name() == name) return verb->help(app.name() + " " + name);
  }
  return app.help(app.name());
}

int print_help(const Command& app, const Context& context, const std::string& name) {
  std::string text = help_of(app, name);
  text.erase(text.find_last_not_of('\n') + 1);
  context.emit({{"verb", name}, {"help", text}});
  context.say(text);
  return context.succeed();
}

}  // namespace

void add_help(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(app, context, "help", "Explain deltawire, or one verb",
                            "  deltawire help\n"
                            "  deltawire help diff");
  auto name = std::make_shared<std::string>();
  std::vector<std::string> verbs;
  for (const auto& one : app.verbs()) verbs.push_back(one->name());
  add_choice(verb, "VERB", name.get(), "the verb to explain (default: what they all are)", verbs);
  verb->callback([&app, &context, call, name] {
    *call = [&app, &context, name] { return print_help(app, context, *name); };
  });
}

}  // namespace deltawire::cli
