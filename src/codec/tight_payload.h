// A `tight` payload taken apart: its model and where each block lies; and what stands at the front
// of a block.
#pragma once

#include <vector>

#include "codec/tight_model.h"

namespace deltawire::tight {

struct Payload {
  Model model;
  std::vector<Bytes> blocks;  // empty ones are blocks without changes
};
// Of an array of n elements. Checked, but for the blocks' insides.
Result<Payload> split_payload(Layout layout, Bytes payload, size_t n);

inline size_t num_blocks_of(size_t n, unsigned block_log2) {
  return (n + (size_t{1} << block_log2) - 1) >> block_log2;
}

struct BlockHead {
  uint32_t unit_classes;
  uint32_t end[kMaxClasses];  // changes of all classes up to this one
};
inline constexpr size_t kMaxHeadBytes =
    (kMaxClasses * (1 + kRiceLimit + kMaxBlockLog2 + 1) + 7) / 8;
// From the front of a block of n elements, which `in` must be able to read kMaxHeadBytes and 8 more
// of. Says what is wrong, or null.
const char* read_block_head(const Model& model, size_t n, BitReader* in, BlockHead* head);

}  // namespace deltawire::tight
