// Options that check their own values: what is wrong is named, with what would have been right.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace deltawire::cli {

// Decimal digits: no sign, no leading zero that could mean octal.
Option* add_whole_number(Command* verb, const std::string& names,
                         std::function<void(uint64_t)> store, const std::string& description,
                         uint64_t least, uint64_t most);
template <class T>
Option* add_whole_number(Command* verb, const std::string& names, T* value,
                         const std::string& description, uint64_t least, uint64_t most) {
  const auto store = [value](uint64_t number) { *value = T(number); };
  return add_whole_number(verb, names, std::function<void(uint64_t)>(store), description, least,
                          most);
}
// A version. Zeros before it are no octal: names of objects have them.
Option* add_version(Command* verb, const std::string& names, std::function<void(uint64_t)> store,
                    const std::string& description);
template <class T>
Option* add_version(Command* verb, const std::string& names, T* value,
                    const std::string& description) {
  const auto store = [value](uint64_t number) { *value = T(number); };
  return add_version(verb, names, std::function<void(uint64_t)>(store), description);
}
// Above `least`, at most `most`.
Option* add_share(Command* verb, const std::string& names, double* value,
                  const std::string& description, double least, double most);
// Seconds, with a fraction if need be, from `least` to `most`.
Option* add_seconds(Command* verb, const std::string& names, double* value,
                    const std::string& description, double least, double most);
// At least 1: "1000000", "256MiB", "1GB".
Option* add_bytes(Command* verb, const std::string& names, uint64_t* value,
                  const std::string& description);
// One of a few words; completion offers them.
Option* add_choice(Command* verb, const std::string& names, std::string* value,
                   const std::string& description, const std::vector<std::string>& words);
// --codec: one of `words`, which choose a codec for each tensor, or a codec.
Option* add_codec(Command* verb, std::string* value, const std::string& description,
                  std::vector<std::string> words);

}  // namespace deltawire::cli
