// Entropy coding leaves the memory bus idle. This asks for the weights that are scanned next while
// it runs, a line per symbol, into the second-level cache: not faster, or the few buffers that a
// core has for lines in flight fill up and the coding itself has to wait.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace deltawire {

class Prefetcher {
 public:
  Prefetcher() = default;
  // Covers [from, end), but no more than fits the cache beside what is in use; `twin`, when given,
  // is where a second array stands at `from`.
  Prefetcher(const uint8_t* from, const uint8_t* end, const uint8_t* twin = nullptr)
      : at_(from), end_(from), to_twin_(twin == nullptr ? 0 : twin - from) {
    if (from < end) end_ = from + std::min<ptrdiff_t>(kMaxBytes, end - from);
  }

  void step() {
    if (at_ >= end_) return;
    __builtin_prefetch(at_ + offset_, 0, 2);
    offset_ = to_twin_ - offset_;  // the other array's turn
    if (offset_ == 0) at_ += kLine;
  }

 private:
  static constexpr ptrdiff_t kLine = 64, kMaxBytes = 256 << 10;
  const uint8_t *at_ = nullptr, *end_ = nullptr;
  ptrdiff_t to_twin_ = 0, offset_ = 0;
};

}  // namespace deltawire
