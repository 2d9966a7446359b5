// The symbols of coded classes: what a step's token is, and what follows an escape.
#pragma once

#include <type_traits>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/tight_symbols.cuh"
#include "kernels/tight_math.h"

namespace deltawire::cuda {

// A table of few symbols, small enough for shared memory. A slot's bucket says where to look: most
// have one symbol, or the first of theirs is meant.
template <unsigned kSymbols>
struct SmallTable {
  static constexpr unsigned kBucketBits = 5;
  uint32_t range[kSymbols];                       // as in the table that it is made of
  uint8_t first[kProbabilityOne >> kBucketBits];  // the symbol of each bucket's first slot

  __device__ void fill(const DecodeTable& from, unsigned lane, unsigned num_lanes) {
    for (unsigned s = lane; s < kSymbols; s += num_lanes) range[s] = from.range[s];
    for (unsigned b = lane; b < sizeof first; b += num_lanes) {
      first[b] = from.symbol_of_slot[b << kBucketBits];
    }
  }
};
template <unsigned kSymbols>
__device__ uint32_t decode_symbol(const SmallTable<kSymbols>& table, uint32_t* state) {
  const uint32_t slot = *state & (kProbabilityOne - 1);
  uint32_t symbol = table.first[slot >> table.kBucketBits];
  uint32_t range = table.range[symbol];
  while (slot >= (range & 0xffff) + (range >> 16)) range = table.range[++symbol];
  *state = (range & 0xffff) * (*state >> kProbabilityBits) + slot - (range >> 16);
  return symbol;
}

// The tables of an array: one for each context, and the one of what follows escapes. Wide elements
// have more symbols: their tables are used as they are.
template <class T>
struct TokenTables {
  template <unsigned kSymbols>
  using Table = std::conditional_t<tight::kLinearSteps<T>, SmallTable<kSymbols>, DecodeTable>;
  const Table<tight::kNumValueTokens<T>>* contexts;
  const Table<tight::kNumEscapes<T>>* escapes;
};

// Changes that are decoded in one go. An escape is two symbols: a damaged block is read this many
// words too far.
inline constexpr unsigned kTokenTile = 64;
static_assert(2 * kTokenTile * 2 + 16 < kPayloadPadding);

// In shared memory, one for each block that is worked on.
struct TokenTile {
  uint8_t context[kTokenTile + 4];  // a look ahead reads some that do not count; they are 0
  uint8_t token[kTokenTile], escape[kTokenTile];
};

// Decodes the tokens of `count` changes whose contexts are in the tile, and what follows escapes.
// One lane's work.
template <class T>
__device__ void decode_tokens(const TokenTables<T>& tables, uint32_t count, TokenTile* tile,
                              Coder* out) {
  constexpr uint32_t kEscape = tight::kEscapeToken<T>;
  Coder coder = *out;
  uint32_t change = 0, context = tile->context[0], context2 = tile->context[1];
  while (change < count) {
    // Two at once, as if the first were no escape.
    const uint32_t two = coder.words.two();
    const uint32_t context3 = tile->context[change + 2], context4 = tile->context[change + 3];
    uint32_t next = coder.next, other = coder.other;
    const uint32_t token = decode_symbol(tables.contexts[context], &next);
    const uint32_t token2 = decode_symbol(tables.contexts[context2], &other);
    tile->token[change] = uint8_t(token);
    coder.next = next;
    const bool both = token != kEscape && change + 1 < count;
    context = both ? context3 : context2;
    context2 = both ? context4 : context3;
    uint32_t last = token;
    if (both) {
      tile->token[++change] = uint8_t(token2);
      coder.other = other;
      coder.refill_both(two);
      last = token2;
    } else {
      coder.refill_next(two);
    }
    if (last == kEscape) tile->escape[change] = uint8_t(coder.decode(*tables.escapes));
    ++change;
  }
  *out = coder;
}

}  // namespace deltawire::cuda
