// Entropy coding leaves the memory bus idle. This asks for the weights that are scanned next while
// it runs, a line per symbol, into the second-level cache.
#pragma once

#include <algorithm>
#include <cstdint>

namespace deltawire {

class Prefetcher {
 public:
  // Covers [from, end), but no more than fits the cache beside what is in use.
  Prefetcher(const void* from, const void* end) {
    if (from == nullptr || from >= end) return;
    at_ = static_cast<const char*>(from);
    left_ = std::min<size_t>(kMaxBytes, size_t(static_cast<const char*>(end) - at_)) / kLine;
  }
  Prefetcher() = default;

  void step() {
    __builtin_prefetch(at_, 0, 2);
    at_ += left_ != 0 ? kLine : 0;
    left_ -= left_ != 0;
  }

 private:
  static constexpr size_t kLine = 64, kMaxBytes = 384 << 10;
  const char* at_ = nullptr;
  size_t left_ = 0;
};

}  // namespace deltawire
