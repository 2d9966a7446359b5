#include <algorithm>
#include <cstring>

#include "codec/checks.h"
#include "codec/elements.h"
#include "codec/gaps_body.h"
#include "codec/leb128.h"

namespace deltawire {
namespace {

// Where a chunk's changes go, given all chunks before it.
struct ChunkPlace {
  uint64_t first_change = 0;
  uint64_t resume = 0;  // the element after the last change so far
};

std::vector<ChunkPlace> place_chunks(const std::vector<ChunkChanges>& chunks) {
  std::vector<ChunkPlace> places(chunks.size());
  ChunkPlace place;
  for (size_t i = 0; i < chunks.size(); ++i) {
    places[i] = place;
    if (chunks[i].positions.empty()) continue;
    place.first_change += chunks[i].positions.size();
    place.resume = chunks[i].base + chunks[i].positions.back() + 1;
  }
  return places;
}

uint64_t first_gap(const ChunkChanges& chunk, const ChunkPlace& place) {
  return chunk.base + chunk.positions.front() - place.resume;
}

uint64_t largest_gap(const ChunkChanges& chunk, const ChunkPlace& place) {
  if (chunk.positions.empty()) return 0;
  uint32_t step = 1;
  for (size_t i = 1; i < chunk.positions.size(); ++i) {
    step = std::max(step, chunk.positions[i] - chunk.positions[i - 1]);
  }
  return std::max(first_gap(chunk, place), uint64_t{step - 1});
}

template <class Gap>
void write_gaps(const ChunkChanges& chunk, const ChunkPlace& place, uint8_t* out) {
  store_le(out, Gap(first_gap(chunk, place)));
  const uint32_t* positions = chunk.positions.data();
  for (size_t i = 1; i < chunk.positions.size(); ++i) {
    store_le(out + i * sizeof(Gap), Gap(positions[i] - positions[i - 1] - 1));
  }
}

}  // namespace

GapsHeader plan_gaps(const std::vector<ChunkChanges>& chunks, ThreadPool* pool) {
  const std::vector<ChunkPlace> places = place_chunks(chunks);
  std::vector<uint64_t> largest(chunks.size());
  parallel_for(pool, chunks.size(),
               [&](size_t i, unsigned) { largest[i] = largest_gap(chunks[i], places[i]); });
  uint64_t gap = 0;
  for (const uint64_t candidate : largest) gap = std::max(gap, candidate);
  GapsHeader header;
  header.gap_width = gap_width_for(gap);
  header.count = count_changes(chunks);
  return header;
}

Result<CollectedGaps> collect_gaps(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                   ThreadPool* pool) {
  DW_RETURN_IF_ERROR(check_arrays(layout, old_bytes, new_bytes));
  CollectedGaps gaps;
  DW_ASSIGN_OR_RETURN(gaps.chunks, collect_chunks(layout.width, old_bytes, new_bytes, pool));
  gaps.header = plan_gaps(gaps.chunks, pool);
  return gaps;
}

void put_gaps_header(const GapsHeader& header, std::vector<uint8_t>* out) {
  out->push_back(uint8_t(header.gap_width));
  put_leb128(header.count, out);
}

void write_gaps_body(const GapsHeader& header, unsigned width, std::vector<ChunkChanges> chunks,
                     uint8_t* out, ThreadPool* pool) {
  const std::vector<ChunkPlace> places = place_chunks(chunks);
  uint8_t* values = out + header.count * header.gap_width;
  parallel_for(pool, chunks.size(), [&](size_t i, unsigned) {
    const ChunkChanges chunk = std::move(chunks[i]);  // its memory goes back when it is written
    if (chunk.positions.empty()) return;
    with_element(header.gap_width, [&]<class Gap>(Gap) {
      write_gaps<Gap>(chunk, places[i], out + places[i].first_change * sizeof(Gap));
    });
    std::memcpy(values + places[i].first_change * width, chunk.values.data(), chunk.values.size());
  });
}

std::vector<uint8_t> gaps_payload(unsigned width, std::span<const uint64_t> positions,
                                  Bytes values) {
  std::vector<uint8_t> payload;
  if (positions.empty()) return payload;
  uint64_t widest = positions[0];
  for (size_t i = 1; i < positions.size(); ++i) {
    widest = std::max(widest, positions[i] - positions[i - 1] - 1);
  }
  const GapsHeader header{gap_width_for(widest), positions.size()};
  put_gaps_header(header, &payload);
  const size_t body_at = payload.size();
  payload.resize(body_at + header.body_bytes(width));
  uint8_t* const out = payload.data() + body_at;
  with_element(header.gap_width, [&]<class Gap>(Gap) {
    uint64_t resume = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      store_le(out + i * sizeof(Gap), Gap(positions[i] - resume));
      resume = positions[i] + 1;
    }
  });
  std::memcpy(out + header.count * header.gap_width, values.data(), values.size());
  return payload;
}

}  // namespace deltawire
