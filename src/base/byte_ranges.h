// A set of bytes, as ranges that do not touch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace deltawire {

class ByteRanges {
 public:
  // Adds [begin, end); returns how many of its bytes were in the set before.
  uint64_t add(uint64_t begin, uint64_t end) {
    const uint64_t own_begin = begin, own_end = end;
    uint64_t known = 0;
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
    for (; at != ranges_.end() && at->first <= end; at = ranges_.erase(at)) {
      const uint64_t low = std::max(at->first, own_begin), high = std::min(at->second, own_end);
      known += high > low ? high - low : 0;
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
    }
    ranges_.emplace(begin, end);
    return known;
  }

  // Whether all of [begin, end) is in the set.
  bool contains(uint64_t begin, uint64_t end) const {
    const auto after = ranges_.upper_bound(begin);
    return begin == end || (after != ranges_.begin() && std::prev(after)->second >= end);
  }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin to end
};

}  // namespace deltawire
