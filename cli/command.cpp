#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <sstream>

namespace deltawire::cli {

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::group(const std::string& heading) {
  option_->group(heading);
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

Option* Option::check(std::function<std::string(const std::string&)> complaint) {
  option_->check(std::move(complaint));
  return this;
}

template <class T>
Option* Option::between(T least, T most) {
  option_->check(CLI::Range(least, most));
  return this;
}
template Option* Option::between(int, int);
template Option* Option::between(unsigned, unsigned);
template Option* Option::between(uint64_t, uint64_t);
template Option* Option::between(double, double);

Option* Option::positive() {
  option_->check(CLI::PositiveNumber);
  return this;
}

Option* Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return this;
}

Option* Option::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return offer(words);
}

Option* Option::offer(std::vector<std::string> words) {
  words_ = std::move(words);
  return this;
}

bool Option::given() const { return option_->count() != 0; }
bool Option::takes_value() const { return option_->get_items_expected_max() != 0; }
const std::vector<std::string>& Option::long_names() const { return option_->get_lnames(); }
const std::vector<std::string>& Option::short_names() const { return option_->get_snames(); }
const std::string& Option::description() const { return option_->get_description(); }

Command::Command(const std::string& description, const std::string& name)
    : owned_(std::make_unique<CLI::App>(description, name)), app_(owned_.get()) {
  keep(app_->get_help_ptr());
}

Command::Command(CLI::App* app) : app_(app) { keep(app_->get_help_ptr()); }

Command::~Command() = default;

Command* Command::add_verb(const std::string& name, const std::string& description) {
  verbs_.emplace_back(new Command(app_->add_subcommand(name, description)));
  return verbs_.back().get();
}

void Command::require_verb() {
  app_->require_subcommand(1);
  app_->get_formatter()->label("SUBCOMMAND", "VERB");
}

void Command::set_version(const std::string& text) {
  keep(app_->set_version_flag("--version", text));
}

void Command::set_footer(const std::string& text) { app_->footer(text); }

void Command::set_group(const std::string& heading) { app_->group(heading); }

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

void Command::final_callback(std::function<void()> when_chosen) {
  app_->final_callback(std::move(when_chosen));
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
std::string Command::description() const { return app_->get_description(); }

std::string Command::help(const std::string& called) const {
  return app_->get_formatter()->make_help(app_, called, CLI::AppFormatMode::Normal);
}

void refuse_value(const std::string& option, const std::string& why) {
  throw CLI::ValidationError(option, why);
}

}  // namespace deltawire::cli
