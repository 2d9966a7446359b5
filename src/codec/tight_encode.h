// The two halves of encoding a block: collecting its changes, and coding them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
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
class BlockChanges {
 public:
  std::span<const Change<T>> of_class(size_t c) const { return {room_[c].data(), end_[c]}; }
  uint32_t count(size_t c) const { return uint32_t(of_class(c).size()); }
  uint32_t total() const {
    uint32_t sum = 0;
    for (size_t c = 0; c < kMaxClasses; ++c) sum += count(c);
    return sum;
  }
  void clear() {
    population = next_rank = {};
    for (size_t c = 0; c < kMaxClasses; ++c) end_[c] = room_[c].data();
  }
  void add(size_t c, Change<T> change) {
    if (end_[c] == limit_[c]) grow(c);
    *end_[c]++ = change;
  }

  std::array<uint32_t, kMaxClasses> population = {};  // elements so far
  std::array<uint32_t, kMaxClasses> next_rank = {};   // behind the last change

 private:
  void grow(size_t c) {
    const size_t count = of_class(c).size();
    room_[c].resize(std::max<size_t>(64, 2 * count));
    end_[c] = room_[c].data() + count;
    limit_[c] = room_[c].data() + room_[c].size();
  }

  Change<T>*end_[kMaxClasses] = {}, *limit_[kMaxClasses] = {};
  std::vector<Change<T>> room_[kMaxClasses];
};

// Where a strip of a scan is: bytes from the begin of either array, and tile * kMaxClasses.
struct StripPlace {
  uint32_t old_at, new_at, tile;
};

// Working memory of one thread.
template <class T>
struct CollectScratch {
  SegmentIndex index;
  uint16_t positions[kSegmentElements + kStripElements];
  uint16_t ranks[kSegmentElements];
  uint8_t classes[kSegmentElements];
  uint8_t lists[kSegmentElements];  // class + tile * kMaxClasses
  Change<T> changes[kSegmentElements];
  // What `strips` are of: most scans are like the one before.
  ScanShape shape;
  ptrdiff_t old_stride, new_stride;
  StripPlace strips[kSegmentStrips];
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
                  CollectScratch<T>* scratch, BlockChanges<T>* out);
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
