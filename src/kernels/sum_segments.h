// How a stretch of words becomes segments: what every target of `Kernels::sum` does around its own
// loops.
#pragma once

#include <algorithm>

#include "kernels/sum_math.h"

namespace deltawire::sum128 {

inline constexpr WordKeys kWordKeys;

// `whole(data, count, first_segment, sums)` adds whole segments, `part(data, num_words, column,
// products)` the products of less than one.
template <class Whole, class Part>
inline void for_segments(const uint8_t* data, size_t num_words, uint64_t position, uint64_t* sums,
                         Whole whole, Part part) {
  const auto add_part = [&](size_t words) {
    uint64_t products[kLanes] = {};
    part(data, words, position % kSegmentWords, products);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += segment_key(lane, position / kSegmentWords) * products[lane];
    }
    data += words * kWordBytes;
    num_words -= words;
    position += words;
  };
  if (const size_t column = position % kSegmentWords; column != 0 && num_words != 0) {
    add_part(std::min(num_words, kSegmentWords - column));
  }
  if (const size_t segments = num_words / kSegmentWords; segments != 0) {
    whole(data, segments, position / kSegmentWords, sums);
    data += segments * kSegmentBytes;
    num_words -= segments * kSegmentWords;
    position += segments * kSegmentWords;
  }
  if (num_words != 0) add_part(num_words);
}

}  // namespace deltawire::sum128
