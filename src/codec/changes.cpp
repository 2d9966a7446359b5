#include "codec/changes.h"

#include <algorithm>
#include <string>

#include "base/guard.h"
#include "codec/checks.h"
#include "codec/elements.h"
#include "kernels/kernels.h"

namespace deltawire {
namespace {

Status check_block(const std::vector<uint64_t>& positions, size_t block, uint64_t num_elements) {
  const auto [begin, end] = change_block(block, positions.size());
  for (size_t i = begin; i < end; ++i) {
    const uint64_t lowest = i == 0 ? 0 : positions[i - 1] + 1;
    if (positions[i] >= lowest && positions[i] < num_elements) continue;
    return bad_payload("position of change " + std::to_string(i),
                       std::to_string(lowest) + " to below " + std::to_string(num_elements),
                       positions[i]);
  }
  return {};
}

}  // namespace

void collect_chunk(unsigned width, Bytes old_bytes, Bytes new_bytes, ChunkChanges* out) {
  const Kernels& kernel = kernels();
  const auto diff = kernel.diff[width_index(width)];
  const auto gather = kernel.gather[width_index(width)];
  const size_t n = new_bytes.size() / width;
  uint16_t found[kSegmentElements + kStripElements];
  size_t count = 0;
  out->positions.clear();
  out->values.clear();
  for (size_t start = 0; start < n; start += kSegmentElements) {
    const size_t length = std::min(kSegmentElements, n - start);
    const size_t added =
        diff(old_bytes.data() + start * width, new_bytes.data() + start * width, length, found);
    if (added == 0) continue;
    if (count + added > out->positions.capacity()) {
      // As dense as so far, and a little more: doubling would waste up to half.
      const size_t expected = (count + added) * n / (start + length);
      const size_t room = std::min(expected + expected / 16 + kStripElements, n);
      out->positions.reserve(room);
      out->values.reserve(room * width);
    }
    out->positions.resize(count + added);
    out->values.resize((count + added) * width);
    uint32_t* positions = out->positions.data() + count;
    for (size_t i = 0; i < added; ++i) positions[i] = uint32_t(start) + found[i];
    gather(new_bytes.data(), positions, added, out->values.data() + count * width);
    count += added;
  }
}

Result<std::vector<ChunkChanges>> collect_chunks(unsigned width, Bytes old_bytes, Bytes new_bytes,
                                                 ThreadPool* pool) {
  const size_t chunk_bytes = kChunkElements * width;
  std::vector<ChunkChanges> chunks((new_bytes.size() + chunk_bytes - 1) / chunk_bytes);
  DW_RETURN_IF_ERROR(
      parallel_try("comparing", pool, chunks.size(), [&](size_t i, unsigned) -> Status {
        const size_t begin = i * chunk_bytes;
        const size_t size = std::min(chunk_bytes, new_bytes.size() - begin);
        chunks[i].base = i * kChunkElements;
        collect_chunk(width, old_bytes.subspan(begin, size), new_bytes.subspan(begin, size),
                      &chunks[i]);
        return {};
      }));
  return chunks;
}

uint64_t count_changes(const std::vector<ChunkChanges>& chunks) noexcept {
  uint64_t count = 0;
  for (const ChunkChanges& chunk : chunks) count += chunk.positions.size();
  return count;
}

Result<Changes> join_chunks(unsigned width, std::vector<ChunkChanges> chunks, ThreadPool* pool) {
  std::vector<size_t> starts(chunks.size());
  size_t count = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    starts[i] = count;
    count += chunks[i].positions.size();
  }
  Changes changes;
  changes.positions.resize(count);
  changes.values.resize(count * width);
  parallel_for(pool, chunks.size(), [&](size_t i, unsigned) {
    const ChunkChanges chunk = std::move(chunks[i]);
    uint64_t* positions = changes.positions.data() + starts[i];
    for (size_t k = 0; k < chunk.positions.size(); ++k) {
      positions[k] = chunk.base + chunk.positions[k];
    }
    std::copy(chunk.values.begin(), chunk.values.end(), changes.values.begin() + starts[i] * width);
  });
  return changes;
}

Result<Changes> collect_changes(unsigned width, Bytes old_bytes, Bytes new_bytes,
                                ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(std::vector<ChunkChanges> chunks,
                      collect_chunks(width, old_bytes, new_bytes, pool));
  return join_chunks(width, std::move(chunks), pool);
}

uint64_t count_different(unsigned width, const uint8_t* a, const uint8_t* b, size_t n) noexcept {
  const auto diff_mask = kernels().diff_mask[width_index(width)];
  uint64_t masks[kSegmentStrips];
  uint64_t count = 0;
  for (size_t start = 0; start < n; start += kSegmentElements) {
    const size_t length = std::min(kSegmentElements, n - start);
    count += diff_mask(a + start * width, b + start * width, length, masks);
  }
  return count;
}

Status scatter_changes(unsigned width, const Changes& changes, MutableBytes data,
                       ThreadPool* pool) {
  const size_t count = changes.positions.size();
  if (changes.values.size() / width != count || changes.values.size() % width != 0) {
    return bad_payload("size of the values", uint64_t(count) * width, changes.values.size());
  }
  const uint64_t num_elements = data.size() / width;
  DW_RETURN_IF_ERROR(parallel_try(
      "decoding", pool, num_change_blocks(count),
      [&](size_t block, unsigned) { return check_block(changes.positions, block, num_elements); }));
  parallel_for(pool, num_change_blocks(count), [&](size_t block, unsigned) {
    const ChangeBlock own = change_block(block, count);
    with_element(width, [&]<class Element>(Element) {
      for (size_t i = own.begin; i < own.end; ++i) {
        store_le(data.data() + changes.positions[i] * sizeof(Element),
                 load_le<Element>(changes.values.data() + i * sizeof(Element)));
      }
    });
  });
  return {};
}

}  // namespace deltawire
