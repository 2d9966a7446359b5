// Reuses the memory of large vectors. Fresh memory costs a page fault per page, which makes filling
// it several times slower.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace deltawire {

// Thread-safe.
class SpareVectors {
 public:
  explicit SpareVectors(uint64_t most_bytes) : most_bytes_(most_bytes) {}  // that are kept

  // A vector of that size with undefined contents.
  std::vector<uint8_t> take(size_t size) {
    std::vector<uint8_t> found = take_spare(size);
    if (found.capacity() < size) {
      found.reserve(size + size / 8);  // room for a slightly larger size next time
    }
    found.resize(size);
    return found;
  }

  void give_back(std::vector<uint8_t> used) noexcept {
    const size_t size = used.capacity();
    if (size < kLeastBytes) return;
    used.resize(size);  // so that take() need not write
    const std::lock_guard lock(mutex_);
    if (size > most_bytes_ - held_bytes_) return;
    try {
      spare_.emplace(size, std::move(used));
      held_bytes_ += size;
    } catch (const std::bad_alloc&) {  // one less to be used again
    }
  }

  uint64_t held_bytes() const {
    const std::lock_guard lock(mutex_);
    return held_bytes_;
  }

 private:
  static constexpr size_t kLeastBytes = size_t{64} << 10;  // smaller ones are left to the allocator

  // Empty if no vector fits, or all that fit are far too large.
  std::vector<uint8_t> take_spare(size_t size) {
    const std::lock_guard lock(mutex_);
    const auto at = spare_.lower_bound(size);
    if (size < kLeastBytes || at == spare_.end() || at->first / 2 > size) return {};
    std::vector<uint8_t> found = std::move(at->second);
    held_bytes_ -= at->first;
    spare_.erase(at);
    return found;
  }

  const uint64_t most_bytes_;
  mutable std::mutex mutex_;
  uint64_t held_bytes_ = 0;
  std::multimap<size_t, std::vector<uint8_t>> spare_;  // by size
};

}  // namespace deltawire
