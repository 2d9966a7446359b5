// A `tight` payload taken apart: its model and where each block lies; and what stands at the front
// of a block.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "codec/codec.h"
#include "codec/regions.h"
#include "codec/tight_model.h"
#include "digest/sums.h"

namespace deltawire::tight {

// What encoder and decoder of `tight` share: blocks, and the memory of those who work on them.

// Memory that a thread keeps from block to block and from array to array.
template <class Scratch>
Scratch& thread_scratch() {
  static thread_local const auto kScratch = std::make_unique<Scratch>();
  return *kScratch;
}

struct Payload {
  Model model;
  std::vector<Bytes> blocks;  // empty ones are blocks without changes
};
// Of an array of n elements. Checked, but for the blocks' insides.
Result<Payload> split_payload(Layout layout, Bytes payload, size_t n);

struct BlockHead {
  uint32_t unit_classes;
  uint32_t end[kMaxClasses];  // changes of all classes up to this one
};
inline constexpr size_t kMaxHeadBytes =
    (kMaxClasses * (1 + kRiceLimit + kMaxBlockLog2 + 1) + 7) / 8;
// From the front of a block of n elements, which `in` must be able to read kMaxHeadBytes and 8 more
// of. Says what is wrong, or null.
const char* read_block_head(const Model& model, size_t n, BitReader* in, BlockHead* head);

// Payloads of `tight`: applied to the old array, or as absolute changes.

// `patched`, unless null, is fed the new array. Payloads are not empty.
Status apply_payload(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool,
                     Hasher* patched);
// The bytes of a payload in tiles that hold tiles of `held`, and the model and directory before.
Result<std::vector<ByteRange>> wanted_bytes(Layout layout, size_t n, Bytes front,
                                            uint64_t payload_bytes, const RegionSet& held,
                                            uint64_t gap);
// Of payloads in tiles.
Status apply_to_regions(Layout layout, size_t n, Bytes payload, const RegionSet& held,
                        const ReadOld& read_old, ThreadPool* pool);
// `sums`, unless null, get those of the old array.
Result<Changes> decode_payload(Layout layout, Bytes payload, Bytes old_bytes, ThreadPool* pool,
                               SharedSums* sums);

}  // namespace deltawire::tight
