#include "device/shared_scratch.h"

#include <iterator>

#include "codec/cuda/device_parts.h"

namespace deltawire::cuda {
SharedScratch::SharedScratch(std::span<uint8_t> memory) : begin_(memory.data()) {
  if (!memory.empty()) free_.emplace(0, memory.size());
}

// The first that is large enough.
SharedScratch::Part SharedScratch::cut(uint64_t num_bytes) {
  if (num_bytes == 0) return {};
  num_bytes = carved_bytes(num_bytes);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [begin, end] = *it;
    if (end - begin < num_bytes) continue;
    auto node = free_.extract(it);
    if (end - begin > num_bytes) {
      node.key() = begin + num_bytes;
      free_.insert(std::move(node));
    }
    return {this, {begin_ + begin, num_bytes}};
  }
  return {};
}

SharedScratch::Part SharedScratch::try_take(uint64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  return cut(num_bytes);
}

SharedScratch::Part SharedScratch::take(uint64_t num_bytes) {
  std::unique_lock lock(mutex_);
  while (true) {
    Part part = cut(num_bytes);
    if (part.has_room()) return part;
    given_back_.wait(lock);
  }
}

void SharedScratch::join(std::span<uint8_t> memory) noexcept {
  const std::lock_guard lock(mutex_);
  uint64_t begin = uint64_t(memory.data() - begin_), end = begin + memory.size();
  auto after = free_.lower_bound(begin);
  if (after != free_.end() && after->first == end) {
    end = after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin() && std::prev(after)->second == begin) {
    std::prev(after)->second = end;
  } else {
    free_.emplace(begin, end);
  }
  given_back_.notify_all();
}

void SharedScratch::Part::give_back() noexcept {
  if (room_ == nullptr) return;
  std::exchange(room_, nullptr)->join(memory_);
  memory_ = {};
}

}  // namespace deltawire::cuda
