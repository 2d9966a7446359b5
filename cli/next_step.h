// What to type after an error: the library's advice with the flags of the command line, and the
// word that someone who mistyped had in mind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire::cli {

// Empty when the message itself says what to do. `verb` is the one that failed, empty if none was
// chosen.
std::string next_step(const Status& status, std::string_view verb);

// The rows of the library's table that the command line adds to: for tests.
std::vector<std::string_view> typed_words();

// The one of `words` that is at most two slips away (a letter more, less, wrong, or two swapped)
// and nearer than the others are; empty when there is none.
std::string nearest_word(std::string_view typed, const std::vector<std::string>& words);

}  // namespace deltawire::cli
