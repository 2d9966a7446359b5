// The symbols of coded classes: what a step's token is, and what follows an escape.
#pragma once

#include <type_traits>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/tight_symbols.cuh"
#include "kernels/tight_math.h"

namespace deltawire::cuda {

// A table of the tokens of narrow elements. There are so few that all are compared with at once:
// no load depends on the coder's state but that of the range it is in.
struct alignas(16) StepTable {
  static constexpr unsigned kSymbols = 17, kFirst = 7;
  static_assert(tight::kNumValueTokens<uint16_t> == kSymbols);
  // From [kFirst] on, where each symbol's range begins, and where the last one ends: those of
  // symbols 1 to 16 are aligned.
  uint16_t starts[32];

  __device__ void fill(const DecodeTable& from, unsigned lane, unsigned num_lanes) {
    for (unsigned s = lane; s < kSymbols; s += num_lanes) {
      starts[kFirst + s] = uint16_t(from.range[s] >> 16);
    }
    if (lane == 0) starts[kFirst + kSymbols] = kProbabilityOne;
  }
};

// The tables of an array: one for each context, and the one of what follows escapes.
struct TokenTables {
  const StepTable* steps;  // of narrow elements only
  const DecodeTable* contexts;
  const DecodeTable* escapes;
};

// The part of a StepTable that is needed to find a symbol, in registers.
struct StepBorders {
  uint4 low, high;
  const StepTable* table;

  __device__ StepBorders(const TokenTables& tables, uint32_t context)
      : table(tables.steps + context) {
    const auto* const from = reinterpret_cast<const uint4*>(&table->starts[StepTable::kFirst + 1]);
    low = from[0];
    high = from[1];
  }
};
__device__ inline uint32_t decode_symbol(const StepBorders& borders, uint32_t* state) {
  const uint4 &low = borders.low, &high = borders.high;
  const uint32_t slot = *state & (kProbabilityOne - 1);
  // Of each half the top bit is left where the slot reaches the border.
  const uint32_t both = slot * 0x00010001U | 0x80008000U;
  const auto reached = [&](uint32_t two) { return (both - two) & 0x80008000U; };
  const uint32_t symbol = __popc(
      reached(low.x) | reached(low.y) >> 1 | reached(low.z) >> 2 | reached(low.w) >> 3 |
      reached(high.x) >> 4 | reached(high.y) >> 5 | reached(high.z) >> 6 | reached(high.w) >> 7);
  const uint16_t* const starts = &borders.table->starts[StepTable::kFirst + symbol];
  const uint32_t start = starts[0], end = starts[1];
  *state = (end - start) * (*state >> kProbabilityBits) + slot - start;
  return symbol;
}

// A table of wide elements has more symbols, and is used as it is.
struct PlainTable {
  const DecodeTable* table;
  __device__ PlainTable(const TokenTables& tables, uint32_t context)
      : table(tables.contexts + context) {}
};
__device__ inline uint32_t decode_symbol(const PlainTable& plain, uint32_t* state) {
  return decode_symbol(*plain.table, state);
}

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
__device__ void decode_tokens(const TokenTables& tables, uint32_t count, TokenTile* tile,
                              Coder* out) {
  using Table = std::conditional_t<tight::kLinearSteps<T>, StepBorders, PlainTable>;
  Coder coder = *out;
  const auto table_of = [&](uint32_t change) { return Table(tables, tile->context[change]); };
  const auto decode_one = [&](const Table& table, uint32_t change) {
    const uint32_t token = coder.decode(table);
    tile->token[change] = uint8_t(token);
    if (token == tight::kEscapeToken<T>) {
      tile->escape[change] = uint8_t(coder.decode(*tables.escapes));
    }
  };
  Table first = table_of(0), second = table_of(1);
  uint32_t change = 0;
  while (change + 1 < count) {
    // Two at once, as if there were no escapes.
    const uint32_t two = coder.words.two();
    Table third = table_of(change + 2), fourth = table_of(change + 3);
    uint32_t next = coder.next, other = coder.other;
    const uint32_t token = decode_symbol(first, &next), token2 = decode_symbol(second, &other);
    if (max(token, token2) == tight::kEscapeToken<T>) {
      decode_one(first, change);
      ++change;
      fourth = third;
      third = second;
    } else {
      tile->token[change] = uint8_t(token);
      tile->token[change + 1] = uint8_t(token2);
      coder.next = next;
      coder.other = other;
      coder.refill_both(two);
      change += 2;
    }
    first = third;
    second = fourth;
  }
  if (change < count) decode_one(first, change);
  *out = coder;
}

}  // namespace deltawire::cuda
