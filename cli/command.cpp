#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <sstream>

namespace deltawire::cli {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kVerbColumn = 14, kOptionColumn = 26;  // where descriptions begin

// Options under these headings belong to many verbs, whose --help does not list them.
constexpr std::string_view kShared[] = {"Store", "Log", "Metrics"};

// Wraps text to kWidth with lines indented by `column`.
std::string wrapped(const std::string& text, size_t column) {
  std::istringstream words(text);
  std::string lines, word;
  for (size_t length = 0; words >> word; length += word.size()) {
    if (length != 0 && column + length + 1 + word.size() > kWidth) {
      lines += '\n';
      length = 0;
    } else if (length != 0) {
      lines += ' ';
      ++length;
    }
    lines += word;
  }
  return lines;
}

class Help : public CLI::Formatter {
 public:
  Help() {
    column_width(kOptionColumn);
    label("SUBCOMMAND", "VERB");
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    // "--no-x{false}" of a flag that clears.
    return CLI::detail::find_and_replace(Formatter::make_option_name(option, is_positional),
                                         "{false}", "");
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional() || option->get_type_name().empty()) return {};
    return " " + option->get_type_name() + (option->get_required() ? " REQUIRED" : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), kOptionColumn);
  }
  // Keeps indented lines as they are and wraps the paragraphs between them.
  std::string make_footer(const CLI::App* app) const override {
    std::istringstream lines(app->get_footer());
    std::string out, paragraph;
    const auto end_paragraph = [&] {
      if (paragraph.empty()) return;
      if (!out.empty() && !out.ends_with("\n\n")) out += "\n";
      out += wrapped(paragraph, 0) + "\n";
      paragraph.clear();
    };
    for (std::string line; std::getline(lines, line);) {
      const bool prose = !line.empty() && line[0] != ' ' && !line.ends_with(':');
      if (prose) {
        paragraph += line + " ";
        continue;
      }
      end_paragraph();
      out += line + "\n";
    }
    end_paragraph();
    return out;
  }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
    std::string out = make_description(app) + make_usage(app, name) + make_positionals(app);
    std::string elsewhere;  // headings
    for (const std::string& group : app->get_groups()) {
      const auto options = app->get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional();
      });
      if (group.empty() || options.empty()) continue;
      const bool shared =
          std::find(std::begin(kShared), std::end(kShared), group) != std::end(kShared);
      if (shared && app->get_parent() != nullptr) {
        elsewhere += (elsewhere.empty() ? "" : ", ") + group;
      } else {
        out += make_group(group, false, options);
      }
    }
    out += make_subcommands(app, CLI::AppFormatMode::Normal);
    if (!elsewhere.empty()) out += "\n" + elsewhere + " options: deltawire --help options\n";
    return out + "\n" + make_footer(app);
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, verb->get_name(), wrapped(verb->get_description(), kVerbColumn),
                             kVerbColumn);
    return out.str();
  }
};

}  // namespace

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::group(const std::string& heading) {
  option_->group(heading);
  return this;
}

Option* Option::describe(const std::string& description) {
  option_->description(description);
  return this;
}

Option* Option::type_name(const std::string& name) {
  option_->type_name(name);
  return this;
}

Option* Option::delimiter(char between) {
  option_->delimiter(between);
  return this;
}

Option* Option::repeatable() {
  option_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return this;
}

Option* Option::needs(Option* other) {
  option_->needs(other->option_);
  return this;
}

Option* Option::excludes(Option* other) {
  option_->excludes(other->option_);
  return this;
}

Option* Option::between(uint64_t least, uint64_t most) {
  option_->check(CLI::Range(least, most));
  return this;
}

Option* Option::positive() {
  option_->check(CLI::PositiveNumber);
  return this;
}

Option* Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return this;
}

bool Option::given() const { return option_->count() != 0; }
const std::vector<std::string>& Option::long_names() const { return option_->get_lnames(); }

Command::Command(const std::string& description, const std::string& name)
    : owned_(std::make_unique<CLI::App>(description, name)), app_(owned_.get()) {
  app_->formatter(std::make_shared<Help>());
  app_->set_help_flag("-h,--help", "print this help and exit");
  keep(app_->get_help_ptr());
}

Command::Command(CLI::App* app) : app_(app) { keep(app_->get_help_ptr()); }

Command::~Command() = default;

Command* Command::add_verb(const std::string& name, const std::string& description) {
  verbs_.emplace_back(new Command(app_->add_subcommand(name, description)));
  return verbs_.back().get();
}

void Command::require_verb() { app_->require_subcommand(1); }

void Command::set_footer(const std::string& text) { app_->footer(text); }

void Command::set_group(const std::string& heading) { app_->group(heading); }

Option* Command::option(const std::string& name) {
  CLI::Option* const named = app_->get_option(name);
  return std::find_if(options_.begin(), options_.end(),
                      [named](const auto& option) { return option->option_ == named; })
      ->get();
}

Option* Command::keep(CLI::Option* option) {
  options_.emplace_back(new Option(option));
  return options_.back().get();
}

template <class T>
Option* Command::add_option(const std::string& names, T& value, const std::string& description) {
  return keep(app_->add_option(names, value, description));
}
template Option* Command::add_option(const std::string&, std::string&, const std::string&);
template Option* Command::add_option(const std::string&, std::filesystem::path&,
                                     const std::string&);
template Option* Command::add_option(const std::string&, unsigned&, const std::string&);
template Option* Command::add_option(const std::string&, uint64_t&, const std::string&);
template Option* Command::add_option(const std::string&, double&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<std::string>&,
                                     const std::string&);
template Option* Command::add_option(const std::string&, std::vector<uint64_t>&,
                                     const std::string&);

Option* Command::add_parsed(const std::string& names, std::function<void(const std::string&)> take,
                            const std::string& description) {
  return keep(app_->add_option_function<std::string>(names, take, description));
}

Option* Command::add_flag(const std::string& names, bool& value, const std::string& description) {
  return keep(app_->add_flag(names, value, description));
}

Option* Command::add_flag(const std::string& names, std::function<void()> when_given,
                          const std::string& description) {
  return keep(app_->add_flag_callback(names, std::move(when_given), description));
}

void Command::callback(std::function<void()> when_chosen) {
  app_->callback(std::move(when_chosen));
}

Parsed Command::parse(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app_->parse(std::move(words));
  } catch (const CLI::ExtrasError& error) {
    return {Parsed::Kind::kTooMany, error.what()};
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return {Parsed::Kind::kMistake, error.what()};
    std::ostringstream text;
    app_->exit(error, text, text);
    return {Parsed::Kind::kText, text.str()};
  }
  return {};
}

std::vector<std::string> Command::remaining() const { return app_->remaining(true); }

const Command* Command::chosen() const {
  const auto named = app_->get_subcommands();
  if (named.empty()) return nullptr;
  const auto found = std::find_if(verbs_.begin(), verbs_.end(),
                                  [&](const auto& verb) { return verb->app_ == named[0]; });
  return found->get();
}

const std::string& Command::name() const { return app_->get_name(); }
std::string Command::help(const std::string& called) const {
  return app_->get_formatter()->make_help(app_, called, CLI::AppFormatMode::Normal);
}

void refuse_value(const std::string& option, const std::string& why) {
  throw CLI::ValidationError(option, why);
}

}  // namespace deltawire::cli
