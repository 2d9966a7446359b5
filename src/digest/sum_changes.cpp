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
    uint8_t after[kWordBytes] = {};
    const size_t known = std::min<size_t>(kWordBytes, bytes.size() - word * kWordBytes);
    std::memcpy(after, bytes.data() + word * kWordBytes, known);
    const auto before_word = load_le<uint64_t>(after);
    for (; i < end && positions[i] / kOfAWord == word; ++i) {
      std::memcpy(after + positions[i] % kOfAWord * kWidth, values + i * kWidth, kWidth);
    }
    const auto after_word = load_le<uint64_t>(after);
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
