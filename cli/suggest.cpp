#include "cli/suggest.h"

#include <algorithm>
#include <utility>

namespace deltawire::cli {
namespace {

// Edits, a swap of neighbours counting as one.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest_word(std::string_view typed, const std::vector<std::string>& words) {
  constexpr size_t kMostSlips = 2;
  std::string best;
  size_t least = std::min(kMostSlips + 1, typed.size());  // not every letter of it
  for (const std::string& word : words) {
    const size_t slips = distance(typed, word);
    if (slips < least) {
      least = slips;
      best = word;
    }
  }
  return best;
}

}  // namespace deltawire::cli
