// The command line: a program, its verbs, their options. Only command.cpp includes CLI11, whose
// headers take seconds to compile.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace deltawire::cli {

// An option, a flag or an argument. Belongs to its command; calls can be chained.
class Option {
 public:
  Option* required();
  // The heading in --help; empty: hidden. The --help of a verb refers to the groups Store, Log and
  // Metrics without listing their options.
  Option* group(const std::string& heading);
  Option* describe(const std::string& description);  // another description
  Option* type_name(const std::string& name);        // what --help calls its value
  Option* delimiter(char between);                   // several values in one word
  Option* repeatable();                              // may be repeated, one value each time
  Option* needs(Option* other);
  Option* excludes(Option* other);

  Option* between(uint64_t least, uint64_t most);
  Option* positive();
  Option* not_negative();

  bool given() const;
  const std::vector<std::string>& long_names() const;  // "output"

 private:
  friend class Command;
  explicit Option(CLI::Option* option) : option_(option) {}
  CLI::Option* const option_;
};

// The result of parsing a command line.
struct Parsed {
  enum class Kind {
    kDone,     // values are stored, the callback of the chosen verb was called
    kText,     // --help: `text` is what to print
    kMistake,  // `text` says what is wrong
    kTooMany,  // a mistake: unexpected arguments are left
  };
  Kind kind = Kind::kDone;
  std::string text;
};

// A program, or one of its verbs. The variables that options set must live until the command line
// is parsed.
class Command {
 public:
  explicit Command(const std::string& description = "", const std::string& name = "");
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Command* add_verb(const std::string& name, const std::string& description);
  void require_verb();  // one, and no more
  void set_footer(const std::string& text);
  void set_group(const std::string& heading);  // of a verb: where --help lists it

  // "-o,--output" is an option, "CKPT" an argument.
  template <class T>  // std::string, path, unsigned, uint64_t, double, vector of string or uint64_t
  Option* add_option(const std::string& names, T& value, const std::string& description);
  // `take` may refuse_value().
  Option* add_parsed(const std::string& names, std::function<void(const std::string&)> take,
                     const std::string& description);
  // "!--no-x" clears it.
  Option* add_flag(const std::string& names, bool& value, const std::string& description);
  Option* add_flag(const std::string& names, std::function<void()> when_given,
                   const std::string& description);

  Option* option(const std::string& name);  // one that was added

  void callback(std::function<void()> when_chosen);

  Parsed parse(std::vector<std::string> words);
  std::vector<std::string> remaining() const;  // unexpected arguments
  const Command* chosen() const;               // the verb given; null: none

  const std::string& name() const;
  std::string help(
      const std::string& called) const;  // `called`: its name after those of its parents
  const std::vector<std::unique_ptr<Command>>& verbs() const { return verbs_; }
  const std::vector<std::unique_ptr<Option>>& options() const { return options_; }

 private:
  explicit Command(CLI::App* app);
  Option* keep(CLI::Option* option);

  std::unique_ptr<CLI::App> owned_;  // of a program; those of verbs belong to it
  CLI::App* const app_;
  std::vector<std::unique_ptr<Command>> verbs_;
  std::vector<std::unique_ptr<Option>> options_;
};

// For add_parsed(): stops parsing with an error that names the option.
[[noreturn]] void refuse_value(const std::string& option, const std::string& why);

}  // namespace deltawire::cli
