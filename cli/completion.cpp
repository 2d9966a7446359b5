// Shell completion, made from the verbs themselves so that it cannot fall behind them.
#include <fmt/format.h>

#include "cli/options.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

// "--output -o"
std::vector<std::string> names_of(const Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.long_names()) names.push_back("--" + name);
  for (const std::string& name : option.short_names()) names.push_back("-" + name);
  return names;
}

// What may follow the options of a verb: the words of its arguments, for those that have some.
std::vector<std::string> arguments_of(const Command& verb) {
  std::vector<std::string> words;
  for (const auto& option : verb.options()) {
    if (!names_of(*option).empty()) continue;
    words.insert(words.end(), option->words().begin(), option->words().end());
  }
  return words;
}

// ---- bash, and zsh through its bashcompinit. Where nothing is offered the shell completes file
// names by itself, and quotes them.

std::string bash_case(const Command& verb) {
  std::string options, cases, valued;
  for (const auto& option : verb.options()) {
    const auto names = names_of(*option);
    for (const std::string& name : names) options += (options.empty() ? "" : " ") + name;
    if (names.empty() || !option->takes_value()) continue;
    if (option->words().empty()) {
      for (const std::string& name : names) valued += (valued.empty() ? "" : "|") + name;
    } else {
      cases += fmt::format("        {}) words=\"{}\" ;;\n", fmt::join(names, "|"),
                           fmt::join(option->words(), " "));
    }
  }
  if (!valued.empty()) cases += fmt::format("        {}) ;;\n", valued);
  return fmt::format(
      "    {})\n"
      "      case $previous in\n{}"
      "        *) [[ $current == -* ]] && words=\"{}\" || words=\"{}\" ;;\n"
      "      esac ;;\n",
      verb.name(), cases, options, fmt::join(arguments_of(verb), " "));
}

std::string bash(const Command& app) {
  std::string verbs, cases;
  for (const auto& verb : app.verbs()) {
    verbs += verb->name() + " ";
    cases += bash_case(*verb);
  }
  return fmt::format(
      "_deltawire() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  local words=\"\" verb=${{COMP_WORDS[1]}}\n"
      "  [[ $COMP_CWORD -eq 1 ]] && verb=\"\"\n"
      "  case $verb in\n"
      "    \"\") words=\"{}--help --version\" ;;\n{}"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}}\n"
      "complete -o default -F _deltawire deltawire",
      verbs, cases);
}

// ---- fish

std::string fish_quoted(std::string text) {
  for (size_t at = 0; (at = text.find_first_of("'\\", at)) != text.npos; at += 2) {
    text.insert(at, "\\");
  }
  return "'" + text + "'";
}

std::string fish_option(const std::string& verb, const Option& option) {
  std::string line = fmt::format("complete -c deltawire -n '__fish_seen_subcommand_from {}'", verb);
  for (const std::string& name : option.long_names()) line += " -l " + name;
  for (const std::string& name : option.short_names()) line += " -s " + name;
  const auto& words = option.words();
  if (!words.empty()) {
    line +=
        fmt::format(" {} -a '{}'", names_of(option).empty() ? "-f" : "-x", fmt::join(words, " "));
  } else if (option.takes_value()) {
    line += " -r";
  }
  return line + " -d " + fish_quoted(option.description()) + "\n";
}

std::string fish(const Command& app) {
  std::string text;
  for (const auto& verb : app.verbs()) {
    text += fmt::format("complete -c deltawire -n __fish_use_subcommand -f -a {} -d {}\n",
                        verb->name(), fish_quoted(verb->description()));
    for (const auto& option : verb->options()) {
      if (!names_of(*option).empty() || !option->words().empty()) {
        text += fish_option(verb->name(), *option);
      }
    }
  }
  text.pop_back();
  return text;
}

int print_completion(const Command& app, const Context& context, const std::string& shell) {
  const std::string script = shell == "fish" ? fish(app)
                             : shell == "zsh"
                                 ? "autoload -U +X bashcompinit && bashcompinit\n" + bash(app)
                                 : bash(app);
  context.emit({{"shell", shell}, {"script", script}});
  context.say(script);
  return context.succeed();
}

}  // namespace

void add_completion(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "completion", "Print a completion script for your shell",
                "  source <(deltawire completion bash)\n"
                "  deltawire completion fish > ~/.config/fish/completions/deltawire.fish");
  auto shell = std::make_shared<std::string>();
  add_choice(verb, "SHELL", shell.get(), "bash, zsh or fish", {"bash", "zsh", "fish"})->required();
  verb->callback([&app, &context, call, shell] {
    *call = [&app, &context, shell] { return print_completion(app, context, *shell); };
  });
}

}  // namespace deltawire::cli
