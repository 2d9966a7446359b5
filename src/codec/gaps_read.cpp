#include <algorithm>
#include <string>

#include "codec/change_blocks.h"
#include "codec/checks.h"
#include "codec/elements.h"
#include "codec/gaps_body.h"
#include "codec/leb128.h"

namespace deltawire {
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

}  // namespace deltawire
