// Options that check their own values: what is wrong is named, with what would have been right.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace deltawire::cli {

// Decimal digits: no sign, no leading zero that could mean octal.
CLI::Option* add_whole_number(CLI::App* verb, const std::string& names,
                              std::function<void(uint64_t)> store, const std::string& description,
                              uint64_t least, uint64_t most);
template <class T>
CLI::Option* add_whole_number(CLI::App* verb, const std::string& names, T* value,
                              const std::string& description, uint64_t least, uint64_t most) {
  const auto store = [value](uint64_t number) { *value = T(number); };
  return add_whole_number(verb, names, std::function<void(uint64_t)>(store), description, least,
                          most);
}
// A version. Zeros before it are no octal: names of objects have them.
CLI::Option* add_version(CLI::App* verb, const std::string& names,
                         std::function<void(uint64_t)> store, const std::string& description);
template <class T>
CLI::Option* add_version(CLI::App* verb, const std::string& names, T* value,
                         const std::string& description) {
  const auto store = [value](uint64_t number) { *value = T(number); };
  return add_version(verb, names, std::function<void(uint64_t)>(store), description);
}
// Above `least`, at most `most`.
CLI::Option* add_share(CLI::App* verb, const std::string& names, double* value,
                       const std::string& description, double least, double most);
// Seconds, with a fraction if need be, from `least` to `most`.
CLI::Option* add_seconds(CLI::App* verb, const std::string& names, double* value,
                         const std::string& description, double least, double most);
// At least 1: "1000000", "256MiB", "1GB".
CLI::Option* add_bytes(CLI::App* verb, const std::string& names, uint64_t* value,
                       const std::string& description);
// One of a few words; completion offers them.
CLI::Option* add_choice(CLI::App* verb, const std::string& names, std::string* value,
                        const std::string& description, const std::vector<std::string>& words);

// The words of an option that has some: empty for all others.
const std::vector<std::string>& words_of(const CLI::Option* option);
// So that completion offers them, for an option that checks by itself.
void offer_words(const CLI::Option* option, std::vector<std::string> words);

}  // namespace deltawire::cli
