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
  // Covers `rows` rows of `row_bytes`, `stride` bytes from one to the next, but no more than fits
  // the cache beside what is in use; `twin`, when given, is where a second array stands at `from`.
  Prefetcher(const uint8_t* from, size_t rows, size_t row_bytes, size_t stride,
             const uint8_t* twin = nullptr)
      : at_(from),
        row_end_(from + row_bytes),
        row_bytes_(ptrdiff_t(row_bytes)),
        stride_(ptrdiff_t(stride)),
        lines_(ptrdiff_t(std::min(rows * row_bytes, kMaxBytes) / size_t(kLine))),
        to_twin_(twin == nullptr ? 0 : twin - from) {}

  void step() {
    if (lines_ <= 0) return;
    __builtin_prefetch(at_ + offset_, 0, 2);
    offset_ = to_twin_ - offset_;  // the other array's turn
    if (offset_ != 0) return;
    at_ += kLine;
    --lines_;
    if (at_ >= row_end_) {
      row_end_ += stride_;
      at_ = row_end_ - row_bytes_;
    }
  }

 private:
  static constexpr ptrdiff_t kLine = 64;
  static constexpr size_t kMaxBytes = 256 << 10;
  const uint8_t *at_ = nullptr, *row_end_ = nullptr;
  ptrdiff_t row_bytes_ = 0, stride_ = 0, lines_ = 0, to_twin_ = 0, offset_ = 0;
};

}  // namespace deltawire
