// The symbols of coded classes: what a step's token is, and what follows an escape. They are two
// chains, since symbols take turns between a block's two coder states; a lane for each.
#pragma once

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

// The part of a StepTable that is needed to find a symbol, in registers.
struct StepBorders {
  uint4 low, high;
  const StepTable* table;

  __device__ static StepBorders of(const StepTable* table) {
    const auto* const from = reinterpret_cast<const uint4*>(&table->starts[StepTable::kFirst + 1]);
    return {from[0], from[1], table};
  }

  __device__ uint32_t decode(uint32_t* state) const {
    const uint32_t slot = *state & (kProbabilityOne - 1);
    // Of each half the top bit is left where the slot reaches the border.
    const uint32_t both = slot * 0x00010001U | 0x80008000U;
    const auto reached = [&](uint32_t borders) { return (both - borders) & 0x80008000U; };
    const uint32_t symbol = __popc(
        reached(low.x) | reached(low.y) >> 1 | reached(low.z) >> 2 | reached(low.w) >> 3 |
        reached(high.x) >> 4 | reached(high.y) >> 5 | reached(high.z) >> 6 | reached(high.w) >> 7);
    const uint32_t start = table->starts[StepTable::kFirst + symbol];
    const uint32_t end = table->starts[StepTable::kFirst + symbol + 1];
    *state = (end - start) * (*state >> kProbabilityBits) + slot - start;
    return symbol;
  }
};

// Changes that are decoded in one go. An escape is two symbols: a damaged block is read this many
// words too far.
inline constexpr unsigned kTokenTile = 64;
static_assert(2 * kTokenTile * 2 + 8 < kPayloadPadding);

// In shared memory, one for each block that is worked on.
struct TokenTile {
  uint8_t context[kTokenTile + 4];  // a look ahead reads some that do not count; they are 0
  uint8_t token[kTokenTile], escape[kTokenTile];
};

// A block's chains, between two tiles. Counts in the first two lanes of its team.
struct TokenChains {
  const uint8_t* words;
  uint32_t state;
  uint32_t turn;  // 0: the next symbol is this lane's, 1: the one after it
};

// Decodes the tokens of `count` changes whose contexts are in the tile, and what follows escapes.
// All lanes of the warp take part; the first two of each team of kTeam lanes do the work.
// `step_tables` are one for each context, and for narrow elements only; `tables` likewise, and the
// one of escapes after them.
template <class T, unsigned kTeam>
__device__ void decode_tokens(const StepTable* step_tables, const DecodeTable* tables,
                              const DecodeTable& escapes, uint32_t count, TokenTile* tile,
                              TokenChains* chains) {
  using namespace tight;
  const unsigned member = lane_id() % kTeam, first_lane = lane_id() - member;
  const bool works = member < kNumStates;
  const uint8_t* at = chains->words;
  uint32_t state = chains->state, turn = chains->turn;
  uint32_t change = 0;   // the first that has no token yet
  uint32_t pending = 0;  // 1: but the next symbol is what follows the escape of the one before it

  StepBorders borders{};
  uint32_t borders_of = ~0U;  // the change that they are for
  const auto step = [&] {
    // Which change each lane's symbol is the token of, if none that comes before is an escape.
    const uint32_t own = change + turn - pending;
    const bool is_rest = pending > turn;  // not a token: what follows an escape
    bool has_symbol = works && (is_rest || own < count);
    uint32_t words = 0;
    StepBorders ahead{};
    if (has_symbol) {
      words = bits_at(at - 4, 0, 32);
      if constexpr (kLinearSteps<T>) {
        if (borders_of != own) borders = StepBorders::of(&step_tables[tile->context[own]]);
        ahead = StepBorders::of(&step_tables[tile->context[own + 2]]);
      }
    }
    const uint32_t state_before = state;
    uint32_t symbol = 0;
    if (has_symbol) {
      if (is_rest) {
        symbol = decode_symbol(escapes, &state);
      } else if constexpr (kLinearSteps<T>) {
        symbol = borders.decode(&state);
      } else {
        symbol = decode_symbol(tables[tile->context[own]], &state);
      }
    }
    const bool escaped = has_symbol && !is_rest && symbol == kEscapeToken<T>;
    const uint32_t all_escaped = __ballot_sync(kAllLanes, escaped) >> first_lane & 3;
    const uint32_t earlier = turn == 0 ? member : member ^ 1;  // the lane whose turn it is
    const uint32_t first_escaped = all_escaped >> earlier & 1;
    const uint32_t second_escaped = (all_escaped >> (earlier ^ 1) & 1) & ~first_escaped;
    if (first_escaped != 0 && turn == 1 && works) {
      // Then the second symbol is no token.
      state = state_before;
      symbol = decode_symbol(escapes, &state);
      if (!has_symbol) words = bits_at(at - 4, 0, 32);
      has_symbol = true;
      tile->escape[change] = uint8_t(symbol);
    } else if (is_rest) {
      if (works) tile->escape[change - 1] = uint8_t(symbol);
    } else if (has_symbol) {
      tile->token[own] = uint8_t(symbol);
    }
    const bool low = has_symbol && state < kRansLow;
    const uint32_t all_low = __ballot_sync(kAllLanes, low) >> first_lane & 3;
    const bool other_low = (all_low >> ((member & 1) ^ 1) & 1) != 0;
    if (low) state = state << 16 | (turn == 1 && other_low ? words & 0xffff : words >> 16);
    at -= 2 * __popc(all_low);
    // A single symbol: the other lane is next.
    const bool first_has = pending != 0 || change < count;
    const bool second_has = first_escaped != 0 || change + 1 - pending < count;
    borders = ahead;
    borders_of = own + 2;
    change = min(change + 2 - pending - first_escaped, count);
    pending = second_escaped;
    if (first_has && !second_has) turn ^= 1;
  };
  const uint32_t most = __reduce_max_sync(kAllLanes, count);
  for (uint32_t symbols = 0; symbols < most; symbols += 2) step();
  while (__any_sync(kAllLanes, works && (change < count || pending != 0))) step();
  chains->words = at;
  chains->state = state;
  chains->turn = turn;
}

}  // namespace deltawire::cuda
