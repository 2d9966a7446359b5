// "Did you mean": the word that someone who mistyped had in mind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deltawire::cli {

// The one of `words` that is at most two slips away (a letter more, less, wrong, or two swapped)
// and nearer than the others are; empty when there is none.
std::string nearest_word(std::string_view typed, const std::vector<std::string>& words);

}  // namespace deltawire::cli
