// Decoding one block: from its bytes and the old weights to positions and new values. In three
// steps, so that tiles that lie side by side can be scanned together.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "codec/prefetch.h"
#include "codec/tight_model.h"
#include "codec/tight_payload.h"

namespace deltawire::tight {

// The two streams of a block and the coder states. `next` is the state of the next symbol.
struct Streams {
  BitReader bits;
  const uint8_t* words;
  uint32_t next, other;
  const uint8_t* begin;  // of the block
  uint64_t num_bits;     // that the block could hold at most
};

// A block that is being decoded, and its changes once it is. Memory is kept from block to block.
struct OpenBlock {
  std::vector<uint8_t> padded;      // its bytes between two margins
  std::vector<uint32_t> positions;  // ranks at first; by class, ascending inside a class
  std::vector<uint8_t> values;      // the old values, then the new ones
  uint32_t count = 0;
  Streams streams = {BitReader(nullptr), nullptr, 0, 0, nullptr, 0};
  BlockHead head;
  uint32_t next[kMaxClasses];  // of each class: the first change that is not located yet
  uint32_t base[kMaxClasses];  // elements in what was scanned

  uint32_t first(int c) const { return c == 0 ? 0 : head.end[c - 1]; }
};

struct LocateScratch {
  SegmentIndex index[kMaxScanTiles];
  uint16_t located[kSegmentElements];
};

// Once per instruction set. A block is not trusted: every count, rank and length is checked, and
// only if all three steps succeed may its changes be used.
struct DecodeOps {
  // The head and the gaps of a block of n elements.
  Status (*open)(const Coder& coder, Bytes block, size_t n, Prefetcher* ahead, OpenBlock* out);
  // The changes in the next segments of old elements become positions: `offset` + row * `stride` +
  // column, in elements from the begin of each block; blocks[0] and so on lie side by side.
  void (*locate)(const Coder& coder, ScanRows old_rows, ScanShape shape, uint32_t offset,
                 uint32_t stride, LocateScratch* scratch, OpenBlock* blocks);
  // The new values, when all has been scanned.
  Status (*finish)(const Coder& coder, Prefetcher* ahead, OpenBlock* block);
};
using DecodeTable = std::array<DecodeOps, 4>;  // by width_index

// The best for this machine, for elements of `width` bytes.
const DecodeOps& decode_ops(size_t width);

}  // namespace deltawire::tight
