// The bytes of `gaps`:
//
//   header = gap_width:u8 (2, 4 or 8) | count:leb128 (at least 1)
//   body   = count x gap:le | count x value
//
// A gap is how many unchanged elements lie between a change and the one before it, or the array's
// start. The width is the smallest that holds every gap; a reader takes any that the array's size
// can need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/changes.h"
#include "codec/codec.h"

namespace deltawire {

struct GapsHeader {
  unsigned gap_width = 2;
  uint64_t count = 0;

  uint64_t body_bytes(unsigned width) const noexcept { return count * (gap_width + width); }
};

// The fewest bytes that hold every gap up to this one.
constexpr unsigned gap_width_for(uint64_t gap) {
  return gap <= 0xffff ? 2 : gap <= 0xffffffff ? 4 : 8;
}

// What an encoder knows before it writes.
struct CollectedGaps {
  std::vector<ChunkChanges> chunks;
  GapsHeader header;  // its count is 0 when nothing changed: then nothing is written
};

// Checks the arrays, finds their changes and plans how to write them.
Result<CollectedGaps> collect_gaps(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                   ThreadPool* pool);

// Writing. `chunks` are the changes of one array in order; write_gaps_body() consumes them and
// fills exactly body_bytes().
GapsHeader plan_gaps(const std::vector<ChunkChanges>& chunks, ThreadPool* pool);
void put_gaps_header(const GapsHeader& header, std::vector<uint8_t>* out);
void write_gaps_body(const GapsHeader& header, unsigned width, std::vector<ChunkChanges> chunks,
                     uint8_t* out, ThreadPool* pool);

// A payload of `gaps` for changes that are known already; they ascend.
std::vector<uint8_t> gaps_payload(unsigned width, std::span<const uint64_t> positions,
                                  Bytes values);

// Reading. Takes a header off the front of *payload; its count is at most `num_elements`.
Result<GapsHeader> take_gaps_header(uint64_t num_elements, Bytes* payload);
// Both check the body's size and every position before they write or allocate anything.
Status apply_gaps_body(const GapsHeader& header, unsigned width, Bytes body, MutableBytes data,
                       ThreadPool* pool);
Result<Changes> decode_gaps_body(const GapsHeader& header, unsigned width, Bytes body,
                                 uint64_t num_elements, ThreadPool* pool);

}  // namespace deltawire
