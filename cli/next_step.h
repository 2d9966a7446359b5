// Advice after an error: the library's advice with flags of the command line, and corrections of
// mistyped words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire::cli {

// Empty when the message itself says what to do. `verb` is the one that failed, empty if none was
// chosen.
std::string next_step(const Status& status, std::string_view verb);

// Logs a failure that is retried after `seconds`, with the next step, if there is one but to wait.
void log_retry(std::string_view event, const Status& status, std::string_view verb, double seconds);

// The rows of the library's table that the command line adds to: for tests.
std::vector<std::string_view> typed_words();

// The unique nearest of `words`, at most two edits away (insert, delete, replace or swap letters);
// empty: none.
std::string nearest_word(std::string_view typed, const std::vector<std::string>& words);

}  // namespace deltawire::cli
