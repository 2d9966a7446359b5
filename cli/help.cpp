// `deltawire help VERB`: the same as `deltawire VERB --help`, for those who try that first.
#include <fmt/format.h>

#include "cli/options.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

std::string help_of(const CLI::App& app, const std::string& name) {
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_name() == name) {
      return verb->get_formatter()->make_help(verb, app.get_name() + " " + name,
                                              CLI::AppFormatMode::Normal);
    }
  }
  return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
}

int print(const CLI::App& app, const Context& context, const std::string& name) {
  std::string text = help_of(app, name);
  text.erase(text.find_last_not_of('\n') + 1);
  context.emit({{"verb", name}, {"help", text}});
  context.say(text);
  return context.succeed();
}

}  // namespace

void add_help(CLI::App& app, Context& context, Run* run) {
  CLI::App* verb = make_verb(app, context, "help", "Explain deltawire, or one verb",
                             "  deltawire help\n"
                             "  deltawire help diff");
  auto name = std::make_shared<std::string>();
  std::vector<std::string> verbs;
  for (const CLI::App* one : app.get_subcommands({})) verbs.push_back(one->get_name());
  add_choice(verb, "VERB", name.get(), "the verb to explain (default: what they all are)", verbs);
  verb->callback([&app, &context, run, name] {
    *run = [&app, &context, name] { return print(app, context, *name); };
  });
}

}  // namespace deltawire::cli
