// Decoding one block: from its bytes and the old weights to positions and new values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/prefetch.h"
#include "codec/tight_model.h"

namespace deltawire::tight {

// Working memory of one thread.
struct DecodeScratch {
  SegmentIndex index;
  uint16_t located[kSegmentElements];
  std::vector<uint8_t> padded;      // the block between two margins
  std::vector<uint32_t> positions;  // ranks first, then positions; by class
  std::vector<uint8_t> old_values;
};

// Where decoded changes go. Exactly one is set: patch in place, or list (position within the block,
// value), by class.
template <class T>
struct Sink {
  bool patch = true;
  std::vector<std::pair<uint32_t, T>>* list = nullptr;
};

// `data` holds the block's n old elements. The block is not trusted: every count, rank and length
// is checked. After an error a patched block is undefined.
template <class T>
Status decode_block(const Coder& coder, Bytes block, uint8_t* data, size_t n, const void* data_end,
                    const Sink<T>& sink, DecodeScratch* scratch);

}  // namespace deltawire::tight
