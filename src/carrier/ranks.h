// Ranks in messages, and lists of spans that are checked before anything is sent.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "deltawire/carrier.h"

namespace deltawire {

// "rank 3", "ranks 1, 3"
inline std::string ranks_text(std::span<const unsigned> ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? " " : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

inline void sort_unique(std::vector<unsigned>* ranks) {
  std::sort(ranks->begin(), ranks->end());
  ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
}

inline Status check_rank(unsigned rank, unsigned size) {
  if (rank < size) return {};
  return invalid_argument("rank " + std::to_string(rank) + " of a group of " +
                          std::to_string(size));
}

}  // namespace deltawire
