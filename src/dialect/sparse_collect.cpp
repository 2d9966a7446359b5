#include "codec/changes.h"
#include "codec/elements.h"
#include "dialect/sparse_changes.h"

namespace deltawire {
namespace {

// Calls use(stored) for each change: its position, or its gap.
template <class Use>
void for_each_stored(const std::vector<ChunkChanges>& chunks, bool gaps, const Use& use) {
  uint64_t resume = 0;
  for (const ChunkChanges& chunk : chunks) {
    for (const uint32_t inside : chunk.positions) {
      const uint64_t position = chunk.base + inside;
      use(gaps ? position - resume : position);
      resume = position + 1;
    }
  }
}

template <class Stored>
void write_positions(const std::vector<ChunkChanges>& chunks, bool gaps, uint8_t* out) {
  for_each_stored(chunks, gaps, [&](uint64_t stored) {
    store_le(out, Stored(stored));
    out += sizeof(Stored);
  });
}

Result<SparseChanges> collect(unsigned width, Bytes old_bytes, Bytes new_bytes, bool gaps,
                              ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const std::vector<ChunkChanges> chunks,
                      collect_chunks(width, old_bytes, new_bytes, pool));
  SparseChanges changes;
  changes.count = count_changes(chunks);
  uint64_t largest = 0;
  for_each_stored(chunks, gaps, [&](uint64_t stored) { largest = std::max(largest, stored); });
  changes.position_width = gaps && largest <= 0xffff ? 2 : 4;
  changes.positions.resize(changes.count * changes.position_width);
  if (changes.position_width == 2) {
    write_positions<uint16_t>(chunks, gaps, changes.positions.data());
  } else {
    write_positions<uint32_t>(chunks, gaps, changes.positions.data());
  }
  changes.values.reserve(changes.count * width);
  for (const ChunkChanges& chunk : chunks) {
    changes.values.insert(changes.values.end(), chunk.values.begin(), chunk.values.end());
  }
  return changes;
}

}  // namespace

Result<SparseChanges> collect_sparse(unsigned width, Bytes old_bytes, Bytes new_bytes, bool gaps,
                                     ThreadPool* pool) {
  if (old_bytes.size() != new_bytes.size() || new_bytes.size() / width > kMaxSparseElements) {
    return invalid_argument("arrays of " + std::to_string(old_bytes.size()) + " and " +
                            std::to_string(new_bytes.size()) + " bytes");
  }
  return collect(width, old_bytes, new_bytes, gaps, pool);
}

}  // namespace deltawire
