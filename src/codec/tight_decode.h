// Decoding one block: from its bytes and the old weights to positions and new values.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "codec/prefetch.h"
#include "codec/tight_model.h"

namespace deltawire::tight {

// Working memory of one thread, and the changes of the block decoded last.
struct DecodeScratch {
  SegmentIndex index;
  uint16_t located[kSegmentElements];
  std::vector<uint8_t> padded;      // the block between two margins
  std::vector<uint32_t> positions;  // within the block; by class, ascending inside a class
  std::vector<uint8_t> values;      // the new values at these positions
  uint32_t count = 0;
};

// `data` holds the block's n old elements; the array goes on to `data_end`. The block is not
// trusted: every count, rank and length is checked, and only then are its changes left in
// `scratch`.
using DecodeBlock = Status (*)(const Coder& coder, Bytes block, const uint8_t* data, size_t n,
                               const uint8_t* data_end, DecodeScratch* scratch);
using DecodeTable = std::array<DecodeBlock, 4>;  // by width_index

// The best for this machine, for elements of `width` bytes.
DecodeBlock decode_block(size_t width);

}  // namespace deltawire::tight
