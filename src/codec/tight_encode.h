// The two halves of encoding a block: collecting its changes, and coding them.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "codec/prefetch.h"
#include "codec/tight_fit.h"
#include "codec/tight_model.h"

namespace deltawire::tight {

// One change as the coder wants it: elements of its class that lie between it and the change
// before, the old value and the step.
template <class T>
struct Change {
  uint32_t gap;
  T old_value, step;
};

// The changes of a block by class. Reused from block to block: memory is kept.
template <class T>
struct BlockChanges {
  std::vector<Change<T>> storage[kMaxClasses];
  uint32_t count[kMaxClasses] = {};
  uint32_t population[kMaxClasses] = {};  // elements of each class so far
  uint32_t next_rank[kMaxClasses] = {};   // behind the last change
  uint32_t total = 0;

  void clear() {
    for (size_t c = 0; c < kMaxClasses; ++c) count[c] = population[c] = next_rank[c] = 0;
    total = 0;
  }
};

// Working memory of one thread.
struct CollectScratch {
  SegmentIndex index;
  uint16_t positions[kSegmentElements + kStripElements];
  uint16_t ranks[kSegmentElements];
  uint8_t classes[kSegmentElements];
};

struct CodeScratch {
  std::vector<uint8_t> bits;
  std::vector<const RansTable::EncodeSymbol*> symbols;
  std::vector<uint8_t> words;
};

struct KeySplit {
  ClassSplit split;
  uint8_t class_of_key[256];
  explicit KeySplit(const ClassSplit& s);
};

// The two halves, once per instruction set.
template <class T>
struct EncodeOps {
  // Scans the next segments of blocks side by side, of both arrays, and adds their changes to
  // out[0] and so on. Nothing need be aligned.
  void (*collect)(const KeySplit& split, ScanRows old_rows, ScanRows new_rows, ScanShape shape,
                  CollectScratch* scratch, BlockChanges<T>* out);
  void (*count_values)(const BlockChanges<T>& changes, const ClassSplit& split, ValueStats* stats);
  // Appends the block's bytes to `out`; nothing for a block without changes.
  void (*code)(const Coder& coder, const BlockChanges<T>& changes, size_t n, Prefetcher* ahead,
               CodeScratch* scratch, std::vector<uint8_t>* out);
};
using EncodeTable =
    std::tuple<EncodeOps<uint8_t>, EncodeOps<uint16_t>, EncodeOps<uint32_t>, EncodeOps<uint64_t>>;

// The best for this machine.
template <class T>
const EncodeOps<T>& encode_ops();

}  // namespace deltawire::tight
