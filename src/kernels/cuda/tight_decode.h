// Decoding `tight` on the device, in four steps: gaps become ranks, ranks become positions, steps
// are decoded, which takes the old values that they belong to, and only then, if nothing was wrong
// with any block, are new values written. Blocks whose steps are all +1 or -1 take a shorter way:
// the new values are known where the old ones are seen.
//
// A class is coded where some of its steps are other than +1 or -1. In weights as they are, most
// blocks have a coded class, the smallest exponents, and several that are not.
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
// Makes `count` of them. Both pointers are to device memory.
Status expand_tables(const TableFrequencies* from, DecodeTable* to, size_t count, Stream stream);

struct TightDecodeArray {
  void* data;
  TightKeys keys;
  uint8_t context_of_key[256];
  uint32_t first_table;  // of its value tables: one for each context, then the escapes
  uint32_t num_contexts;
};

// One block of a payload, with what the host has read off its front.
struct TightDecodeBlock {
  uint64_t bytes;          // where it begins among the payload bytes
  uint64_t first_element;  // of its array
  uint32_t length, array, number;
  uint32_t num_elements;
  uint32_t first_change;  // in `positions`
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
  uint32_t signs[kMaxClasses];  // where those of classes that are not coded begin, in bits; known
                                // when coded classes are decoded, unused with only_units
};

// All on the device.
struct TightDecodeWork {
  const TightDecodeArray* arrays;
  const TightDecodeBlock* blocks;
  uint32_t num_blocks;
  const uint8_t* payload;         // with kPayloadPadding readable bytes before and after
  const DecodeTable* gap_tables;  // 256
  const DecodeTable* value_tables;
  TightStreams* streams;  // one for each block
  uint32_t* positions;    // one for each change
  void* values;           // one for each change of coded classes, one class after the other
  PatchStatus* status;
};
// A damaged block may be read this far past its ends.
inline constexpr size_t kPayloadPadding = 512;

// `width` is of all arrays. Everything is checked and nothing written:
Status check_tight(const TightDecodeWork& work, unsigned width, Stream stream);
// After it, the writes; none if the status says that something is wrong.
Status write_tight(const TightDecodeWork& work, unsigned width, Stream stream);
// Both at once, in one scan less: what is wrong is found, but may be when some of the weights have
// been written.
Status patch_tight(const TightDecodeWork& work, unsigned width, Stream stream);

}  // namespace deltawire::cuda
