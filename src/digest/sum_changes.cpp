#include "digest/sum_changes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/sum_segments.h"

namespace deltawire {
namespace {

using sum128::kLanes;
using sum128::kSegmentWords;
using sum128::kWordBytes;

constexpr size_t kChangesOfATask = 16384;

struct Lanes {
  std::array<uint64_t, kLanes> sums{};
};

constexpr size_t kAhead = 24;  // changes

// The last one may be cut; what it lacks is zero.
inline uint64_t word_at(Bytes bytes, uint64_t word) {
  const uint8_t* const at = bytes.data() + word * kWordBytes;
  if ((word + 1) * kWordBytes <= bytes.size()) return load_le<uint64_t>(at);
  uint64_t cut = 0;
  std::memcpy(&cut, at, bytes.size() - word * kWordBytes);
  return cut;
}

// Changes [begin, end). Neighbours that share a word are taken together.
template <unsigned kWidth>
void replace_some(Bytes bytes, std::span<const uint64_t> positions, const uint8_t* values,
                  size_t begin, size_t end, Lanes* out) {
  constexpr uint64_t kOfAWord = kWordBytes / kWidth;
  uint64_t segment = UINT64_MAX, keys[kLanes] = {};
  Lanes lanes;
  for (size_t i = begin; i < end;) {
    const uint64_t word = positions[i] / kOfAWord;
    if (word / kSegmentWords != segment) {
      segment = word / kSegmentWords;
      for (size_t lane = 0; lane < kLanes; ++lane) keys[lane] = sum128::segment_key(lane, segment);
    }
    // Words lie far apart: they are asked for before their turn comes.
    __builtin_prefetch(bytes.data() + positions[std::min(i + kAhead, end - 1)] * kWidth);
    const uint64_t before_word = word_at(bytes, word);
    uint64_t after_word = before_word;
    for (; i < end && positions[i] / kOfAWord == word; ++i) {
      const unsigned shift = unsigned(positions[i] % kOfAWord) * kWidth * 8;
      constexpr uint64_t kElement = ~uint64_t{0} >> (64 - 8 * kWidth);
      uint64_t value = 0;
      std::memcpy(&value, values + i * kWidth, kWidth);
      after_word = (after_word & ~(kElement << shift)) | value << shift;
    }
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t key = sum128::kWordKeys.keys[lane][word % kSegmentWords];
      lanes.sums[lane] +=
          keys[lane] * (sum128::product(after_word, key) - sum128::product(before_word, key));
    }
  }
  *out = lanes;
}

// The first change at or behind `at` that begins a word.
size_t word_begin(std::span<const uint64_t> positions, uint64_t of_a_word, size_t at) {
  while (at > 0 && at < positions.size() &&
         positions[at] / of_a_word == positions[at - 1] / of_a_word) {
    ++at;
  }
  return std::min(at, positions.size());
}

}  // namespace

void replace_elements(unsigned width, Bytes bytes, std::span<const uint64_t> positions,
                      Bytes values, ThreadPool* pool, Sums* sums) {
  const size_t tasks = (positions.size() + kChangesOfATask - 1) / kChangesOfATask;
  std::vector<Lanes> found(tasks);
  const uint64_t of_a_word = kWordBytes / width;
  parallel_for(pool, tasks, [&](size_t task, unsigned) {
    const size_t begin = word_begin(positions, of_a_word, task * kChangesOfATask);
    const size_t end = word_begin(positions, of_a_word, (task + 1) * kChangesOfATask);
    const auto replace = width == 1   ? replace_some<1>
                         : width == 2 ? replace_some<2>
                         : width == 4 ? replace_some<4>
                                      : replace_some<8>;
    replace(bytes, positions, values.data(), begin, end, &found[task]);
  });
  for (const Lanes& lanes : found) sums->add_lanes(lanes.sums, 0);
}

}  // namespace deltawire
