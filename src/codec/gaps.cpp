// gaps: distances between changes, then values. The fast one: encoding runs at the speed of the
// diff, applying is a running sum and a store. gaps.h has the layout; the payload is header
// and body, and empty when nothing changed.
#include "codec/gaps.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/codec.h"
#include "codec/elements.h"
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

namespace {

unsigned widest_gap(uint64_t num_elements) {
  return num_elements <= 0x10000 ? 2 : num_elements <= 0x100000000 ? 4 : 8;
}

// How many elements the gaps and changes of a block cover. More than num_elements is as good as
// out of range; 8-byte gaps stop there so as not to overflow.
template <class Gap>
uint64_t covered(const uint8_t* gaps, ChangeBlock block, uint64_t num_elements) {
  uint64_t sum = block.end - block.begin;
  for (size_t i = block.begin; i < block.end; ++i) {
    const uint64_t gap = load_le<Gap>(gaps + i * sizeof(Gap));
    if (sizeof(Gap) == 8 && (gap > num_elements || sum > num_elements)) return num_elements + 1;
    sum += gap;
  }
  return sum;
}

// Names the change in `block` that lies outside the array; `resume` is where the block starts.
template <class Gap>
Status out_of_range(const uint8_t* gaps, ChangeBlock block, uint64_t resume,
                    uint64_t num_elements) {
  size_t i = block.begin;
  uint64_t gap = 0;
  for (; i < block.end; ++i) {
    gap = load_le<Gap>(gaps + i * sizeof(Gap));
    if (gap >= num_elements - resume) break;
    resume += gap + 1;
  }
  return bad_payload("gap of change " + std::to_string(i),
                     "below " + std::to_string(num_elements - resume), gap);
}

// The element each block starts at, in order. Success means that every position is in the array.
Result<std::vector<uint64_t>> locate_blocks(const GapsHeader& header, unsigned width, Bytes body,
                                            uint64_t num_elements, ThreadPool* pool) {
  if (body.size() != header.body_bytes(width)) {
    return bad_payload("size of gaps and values", header.body_bytes(width), body.size());
  }
  std::vector<uint64_t> starts(num_change_blocks(header.count));
  parallel_for(pool, starts.size(), [&](size_t i, unsigned) {
    with_element(header.gap_width, [&]<class Gap>(Gap) {
      starts[i] = covered<Gap>(body.data(), change_block(i, header.count), num_elements);
    });
  });
  uint64_t resume = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const uint64_t size = starts[i];
    if (size > num_elements - resume) {
      return with_element(header.gap_width, [&]<class Gap>(Gap) {
        return out_of_range<Gap>(body.data(), change_block(i, header.count), resume, num_elements);
      });
    }
    starts[i] = resume;
    resume += size;
  }
  return starts;
}

template <class Gap, class Element>
void scatter_block(const uint8_t* gaps, const uint8_t* values, ChangeBlock block, uint64_t start,
                   uint8_t* data) {
  uint8_t* at = data + start * sizeof(Element);
  for (size_t i = block.begin; i < block.end; ++i) {
    at += load_le<Gap>(gaps + i * sizeof(Gap)) * sizeof(Element);
    store_le(at, load_le<Element>(values + i * sizeof(Element)));
    at += sizeof(Element);
  }
}

template <class Gap>
void position_block(const uint8_t* gaps, ChangeBlock block, uint64_t resume, uint64_t* positions) {
  for (size_t i = block.begin; i < block.end; ++i) {
    positions[i] = resume + load_le<Gap>(gaps + i * sizeof(Gap));
    resume = positions[i] + 1;
  }
}

}  // namespace

Result<GapsHeader> take_gaps_header(uint64_t num_elements, Bytes* payload) {
  if (payload->empty()) return bad_payload("gap width", "2, 4 or 8", "the end of the payload");
  GapsHeader header;
  header.gap_width = payload->front();
  *payload = payload->subspan(1);
  const unsigned width = header.gap_width;
  if ((width != 2 && width != 4 && width != 8) || width > widest_gap(num_elements)) {
    return bad_payload("gap width",
                       "2, 4 or 8 and at most " + std::to_string(widest_gap(num_elements)), width);
  }
  DW_RETURN_IF_ERROR(take_leb128("change count", payload, &header.count));
  if (header.count == 0 || header.count > num_elements) {
    return bad_payload("change count", "1 to " + std::to_string(num_elements), header.count);
  }
  return header;
}

Status apply_gaps_body(const GapsHeader& header, unsigned width, Bytes body, MutableBytes data,
                       ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> starts,
                      locate_blocks(header, width, body, data.size() / width, pool));
  const uint8_t* values = body.data() + header.count * header.gap_width;
  parallel_for(pool, starts.size(), [&](size_t i, unsigned) {
    with_element(header.gap_width, [&]<class Gap>(Gap) {
      with_element(width, [&]<class Element>(Element) {
        scatter_block<Gap, Element>(body.data(), values, change_block(i, header.count), starts[i],
                                    data.data());
      });
    });
  });
  return {};
}

Result<Changes> decode_gaps_body(const GapsHeader& header, unsigned width, Bytes body,
                                 uint64_t num_elements, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> starts,
                      locate_blocks(header, width, body, num_elements, pool));
  const Bytes values = body.subspan(header.count * header.gap_width);
  Changes changes;
  changes.positions.resize(header.count);
  changes.values.assign(values.begin(), values.end());
  parallel_for(pool, starts.size(), [&](size_t i, unsigned) {
    with_element(header.gap_width, [&]<class Gap>(Gap) {
      position_block<Gap>(body.data(), change_block(i, header.count), starts[i],
                          changes.positions.data());
    });
  });
  return changes;
}

namespace {

class GapsCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kGaps; }
  std::string_view name() const noexcept override { return "gaps"; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    DW_ASSIGN_OR_RETURN(CollectedGaps gaps, collect_gaps(layout, old_bytes, new_bytes, pool));
    const GapsHeader& header = gaps.header;
    Encoded encoded;
    encoded.num_changed = header.count;
    if (header.count == 0) return encoded;
    put_gaps_header(header, &encoded.payload);
    const size_t body_at = encoded.payload.size();
    encoded.payload.resize(body_at + header.body_bytes(layout.width));
    write_gaps_body(header, layout.width, std::move(gaps.chunks), encoded.payload.data() + body_at,
                    pool);
    return encoded;
  }

  Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_array(layout, data.size()));
    if (payload.empty()) return {};
    DW_ASSIGN_OR_RETURN(const GapsHeader header,
                        take_gaps_header(data.size() / layout.width, &payload));
    return apply_gaps_body(header, layout.width, payload, data, pool);
  }

  Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_array(layout, old_bytes.size()));
    if (payload.empty()) return Changes{};
    const uint64_t num_elements = old_bytes.size() / layout.width;
    DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(num_elements, &payload));
    return decode_gaps_body(header, layout.width, payload, num_elements, pool);
  }
};

}  // namespace

const Codec& gaps_codec() noexcept {
  static const GapsCodec codec;
  return codec;
}

}  // namespace deltawire
