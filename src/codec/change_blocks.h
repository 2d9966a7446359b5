// Changes are read and written by several threads, one block of them at a time. Not on disk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace deltawire {

// So many that handing a block out costs nothing, so few that the gaps of a block, 4 bytes each,
// cannot sum up to 2^64.
inline constexpr size_t kBlockChanges = 65536;

struct ChangeBlock {
  size_t begin = 0;
  size_t end = 0;
};

inline size_t num_change_blocks(uint64_t count) {
  return size_t((count + kBlockChanges - 1) / kBlockChanges);
}

inline ChangeBlock change_block(size_t index, uint64_t count) {
  const size_t begin = index * kBlockChanges;
  return {begin, size_t(std::min<uint64_t>(begin + kBlockChanges, count))};
}

}  // namespace deltawire
