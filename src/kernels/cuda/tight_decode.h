// Decoding `tight` on the device. Gaps become ranks, then a scan of the weights finds the elements
// that have them, and writes. A class is coded where some of its steps are other than +1 or -1. In
// weights as they are, most blocks have a coded class, the smallest exponents, and several that are
// not. What a coded step is takes its old weight, and where a sign stands takes the coded steps
// before it: blocks with coded classes are scanned twice. The first scan fetches old values of
// coded classes, from which the new ones are decoded.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/lists.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/tight.h"

namespace deltawire::cuda {

// On the device: what a decoder looks symbols up in.
struct DecodeTable {
  uint8_t symbol_of_slot[kProbabilityOne];
  uint32_t range[kMaxSymbols];  // frequency | start << 16
  uint32_t num_symbols;
};
// The same of gaps, small enough to be copied to shared memory, where lookups do not wait for those
// who stream weights. Entries say all about a symbol; most slots have that of their bucket.
struct alignas(16) GapTable {
  static constexpr unsigned kBucketBits = 5, kSymbols = 80;
  uint32_t buckets[kProbabilityOne >> kBucketBits];  // of each one's first slot
  uint32_t symbols[kSymbols];
  uint32_t num_symbols;

  // The symbol | where its range begins << 7 | its frequency - 1 << 19
  static constexpr uint32_t entry(uint32_t symbol, uint32_t start, uint32_t frequency) {
    return symbol | start << 7 | (frequency - 1) << 19;
  }
  static constexpr uint32_t symbol(uint32_t entry) { return entry & 0x7f; }
  static constexpr uint32_t start(uint32_t entry) { return entry >> 7 & 0xfff; }
  static constexpr uint32_t frequency_less_one(uint32_t entry) { return entry >> 19; }
};
static_assert(kProbabilityBits == 12 && GapTable::kSymbols <= 128);
// Makes `count` of them. Both pointers are to device memory.
Status expand_tables(const TableFrequencies* from, DecodeTable* to, size_t count, Stream stream);
Status expand_tables(const TableFrequencies* from, GapTable* to, size_t count, Stream stream);

struct TightDecodeArray {
  TightKeys keys;
  uint8_t context_of_key[256];
  uint32_t first_table;  // of its value tables: one for each context, then the escapes
  uint32_t num_contexts;
};

// One block of a payload, with what the host has read off its front.
struct TightDecodeBlock {
  uint64_t bytes;    // where it begins among the payload bytes
  void* data;        // what its elements are in
  BlockPlace place;  // of these there
  uint32_t length, array, number;
  uint32_t num_elements;
  uint32_t first_change;  // in `ranks`
  uint32_t first_value;   // in `values`, of its coded classes; unused with only_units
  uint32_t only_units;    // 1: all of its steps are +1 or -1
  uint32_t bits_at;       // where raw bits of gaps begin, in bits from its start
  uint32_t unit_classes;
  uint32_t end[kMaxClasses];  // changes of all classes up to this one
  uint8_t q[kMaxClasses];     // the gap table of each class
};

// Where a block's streams are between two steps.
struct TightStreams {
  uint32_t bits, words;         // bits from the front; bytes from the front, downwards
  uint32_t next, other;         // coder states
  uint32_t signs[kMaxClasses];  // where those of each class that is not coded begin, in bits
};

// All on the device.
struct TightDecodeWork {
  const TightDecodeArray* arrays;
  const TightDecodeBlock* blocks;
  uint32_t num_blocks, num_coded;  // of these, those with coded classes
  const uint8_t* payload;          // with kPayloadPadding readable bytes before and after
  const GapTable* gap_tables;      // 256
  const DecodeTable* value_tables;
  TightStreams* streams;  // one for each block
  uint32_t* ranks;        // one for each change; of coded ones later their positions
  void* values;           // one for each change of coded classes: old ones, then new ones
  PatchStatus* status;
  // Unless null: what is written adds up to both lanes of sum128 of each array here, all words of
  // the blocks that were written. Zero before.
  uint64_t* sums;
  void* listed;  // of list_tight(): one for each change, its new value
};
// A damaged block may be read this far past its ends.
inline constexpr size_t kPayloadPadding = 512;

// Chains of symbols take long and little of the device, scans all of it: with an urgent stream,
// chains of some blocks run beside scans of others. Calls begin and end on `chains`.
struct TightDecodeStreams {
  Stream chains, scans;
};

// `width` is of all arrays. Everything is checked and nothing written:
Status check_tight(const TightDecodeWork& work, unsigned width, TightDecodeStreams streams);
// After it, the writes; none if the status says that something is wrong.
Status write_tight(const TightDecodeWork& work, unsigned width, TightDecodeStreams streams);
// Both at once, in one scan less: what is wrong is found, but may be when some of the weights have
// been written.
Status patch_tight(const TightDecodeWork& work, unsigned width, TightDecodeStreams streams);
// Writes nothing: `ranks` become positions, which fit 32 bits, in the elements' memory, and
// `listed` the new values. Undefined if something is wrong.
Status list_tight(const TightDecodeWork& work, unsigned width, TightDecodeStreams streams);

}  // namespace deltawire::cuda
