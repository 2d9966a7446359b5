// Shell completion, made from the verbs themselves so that it cannot fall behind them.
#include <fmt/format.h>

#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

std::string words_of(const CLI::App& verb) {
  std::string words;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) words += " --" + name;
    for (const std::string& name : option->get_snames()) words += " -" + name;
  }
  return words.empty() ? words : words.substr(1);
}

std::string bash(const CLI::App& app) {
  std::string verbs, cases;
  for (const CLI::App* verb : app.get_subcommands({})) {
    verbs += verb->get_name() + " ";
    cases += fmt::format("    {}) words=\"{}\" ;;\n", verb->get_name(), words_of(*verb));
  }
  return fmt::format(
      "_deltawire() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} words\n"
      "  case ${{COMP_WORDS[1]}} in\n{}"
      "    *) words=\"{}--help --version\" ;;\n"
      "  esac\n"
      "  if [[ $COMP_CWORD -eq 1 ]]; then words=\"{}--help --version\"; fi\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  [[ $COMP_CWORD -gt 1 && $current != -* ]] && COMPREPLY+=($(compgen -f -- \"$current\"))\n"
      "}}\n"
      "complete -o filenames -F _deltawire deltawire",
      cases, verbs, verbs);
}

std::string fish(const CLI::App& app) {
  std::string text;
  for (const CLI::App* verb : app.get_subcommands({})) {
    text += fmt::format("complete -c deltawire -n __fish_use_subcommand -a {} -d '{}'\n",
                        verb->get_name(), verb->get_description());
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        text +=
            fmt::format("complete -c deltawire -n '__fish_seen_subcommand_from {}' -l {} -d '{}'\n",
                        verb->get_name(), name, option->get_description());
      }
    }
  }
  text.pop_back();
  return text;
}

int print(const CLI::App& app, const Context& context, const std::string& shell) {
  const std::string script = shell == "fish" ? fish(app)
                             : shell == "zsh"
                                 ? "autoload -U +X bashcompinit && bashcompinit\n" + bash(app)
                                 : bash(app);
  context.emit({{"shell", shell}, {"script", script}});
  context.say(script);
  return context.succeed();
}

}  // namespace

void add_completion(CLI::App& app, Context& context, Run* run) {
  CLI::App* verb =
      make_verb(app, context, "completion", "Print a completion script for your shell",
                "  source <(deltawire completion bash)\n"
                "  deltawire completion fish > ~/.config/fish/completions/deltawire.fish");
  auto shell = std::make_shared<std::string>();
  verb->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->callback([&app, &context, run, shell] {
    *run = [&app, &context, shell] { return print(app, context, *shell); };
  });
}

}  // namespace deltawire::cli
