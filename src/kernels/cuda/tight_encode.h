// Encoding `tight` on the device: statistics for the host to fit models to, then blocks of bytes
// that are the CPU's, bit for bit.
#pragma once

#include <cstdint>

#include "kernels/cuda/diff.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/tight.h"

namespace deltawire::cuda {

// ---- statistics

struct SampleArray {
  const void* old_data;
  const void* new_data;
  uint64_t num_elements;
  uint64_t num_pieces, taken;  // of kSamplePiece elements: how many there are, how many to look at
  uint8_t key_shift, key_mask;
};
inline constexpr uint32_t kSamplePiece = 2048;
inline constexpr uint32_t kMaxSampledPieces = 64;

// By key, in the pieces that were taken.
struct KeyCounts {
  uint32_t population[256], changed[256];
};
// `arrays` and `out` (zero before) are on the device.
Status sample_keys(const SampleArray* arrays, uint32_t num_arrays, unsigned width, NewKind kind,
                   KeyCounts* out, Stream stream);

// Whole blocks, to fit tables to.
struct SampleBlock {
  uint32_t array, num_elements;
  BlockPlace place;
};
// For each array, one after the other: 256 x population by key, 256 x changes, tokens of the steps
// by key, escapes.
constexpr uint32_t num_value_counts(uint8_t width) {
  return 512 + 256 * tight::num_value_tokens(width) + tight::num_escapes(width);
}
Status sample_values(const SampleArray* arrays, const SampleBlock* blocks, uint32_t num_blocks,
                     unsigned width, NewKind kind, uint32_t* out, Stream stream);

// ---- coding

struct EncodeSymbol {
  uint64_t reciprocal;
  uint32_t bias, frequency;
};
struct EncodeTable {
  EncodeSymbol symbols[kMaxSymbols];
  uint32_t num_symbols;
  uint32_t unused[3];
};
// Makes `count` of them. Both pointers are to device memory.
Status expand_tables(const TableFrequencies* from, EncodeTable* to, size_t count, Stream stream);

struct TightEncodeArray {
  const void* old_data;
  const void* new_data;
  uint64_t num_elements;
  TightKeys keys;
  uint8_t context_of_key[256];
  uint8_t q[kMaxClasses], mean_codes[kMaxClasses];
  uint32_t fitted;
  uint32_t first_table, num_contexts;  // value tables: one for each context, then the escapes
  uint32_t room[kMaxClasses + 1];      // of a block's lists: where each class begins, and the end
  uint32_t out_bytes;                  // room for a block's bytes, a multiple of four
};

struct TightEncodeBlock {
  uint32_t array, num_elements;
  BlockPlace place;
  uint64_t first_change;  // its lists, in the lists
  uint64_t out;           // its bytes
};

// What became of a block.
struct TightEncodeResult {
  uint32_t count[kMaxClasses];
  uint32_t unit_classes;
  uint32_t total;
  uint32_t num_bytes;
  uint32_t no_room;  // 1: lists, 2: bytes did not fit: to be done again with more room
  uint64_t sums[2];  // lanes of sum128 of its new elements, where they are asked for
};

// All on the device.
struct TightEncodeWork {
  const TightEncodeArray* arrays;
  const TightEncodeBlock* blocks;
  uint32_t num_blocks;
  const EncodeTable* gap_tables;  // 256
  const EncodeTable* value_tables;
  // Lists of changes by class.
  uint32_t* ranks;
  void *old_values, *steps;
  uint8_t* out;
  TightEncodeResult* results;
  bool with_sums;
};
// Changes of each block by class, then their bytes.
Status collect_tight(const TightEncodeWork& work, unsigned width, NewKind kind, Stream stream);
Status code_tight(const TightEncodeWork& work, unsigned width, Stream stream);

// All blocks' bytes side by side. `places` gets where each begins and, after the last, the end.
Status gather_blocks(const TightEncodeWork& work, uint64_t* places, uint8_t* to, Stream stream);

}  // namespace deltawire::cuda
