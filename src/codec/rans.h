// Range ANS with 12-bit probabilities, 32-bit states and 16-bit words. The encoder runs backwards,
// the decoder reads its words from the end of the block towards the front.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "kernels/tight_math.h"

namespace deltawire {

// A static code over up to kMaxSymbols symbols; frequencies are >= 1 and sum to kProbabilityOne.
// Each symbol carries a meaning for the decoder: a base value and a number of raw bits to add.
struct RansTable {
  struct EncodeSymbol {
    uint64_t reciprocal;
    uint32_t bias;
    uint16_t frequency;

    // x / f by multiplication: exact for all 32-bit x with a 64-bit rounded-up reciprocal. f = 1
    // has none, so its quotient comes out one short and the bias makes up for it.
    static EncodeSymbol of(uint32_t f, uint32_t start) {
      return f == 1 ? EncodeSymbol{~uint64_t{0}, start + kProbabilityOne - 1, 1}
                    : EncodeSymbol{~uint64_t{0} / f + 1, start, uint16_t(f)};
    }
  };
  // frequency | start << 16 | base << 32 | raw_bits << 56
  uint64_t decode[kMaxSymbols];
  EncodeSymbol encode[kMaxSymbols];
  uint8_t symbol_of_slot[kProbabilityOne];
  uint32_t num_symbols = 0;

  void build(const uint16_t* frequencies, uint32_t count, const uint32_t* base,
             const uint8_t* raw_bits) {
    num_symbols = count;
    uint32_t start = 0;
    for (uint32_t s = 0; s < count; ++s) {
      const uint32_t f = frequencies[s];
      std::memset(symbol_of_slot + start, int(s), f);
      decode[s] = f | uint64_t(start) << 16 | uint64_t(base == nullptr ? s : base[s]) << 32 |
                  uint64_t(raw_bits == nullptr ? 0 : raw_bits[s]) << 56;
      encode[s] = EncodeSymbol::of(f, start);
      start += f;
    }
  }
};

// Decoded symbol, as packed in RansTable::decode.
inline uint32_t symbol_base(uint64_t info) { return uint32_t(info >> 32) & 0xffffff; }
inline unsigned symbol_raw_bits(uint64_t info) { return unsigned(info >> 56); }

// Decodes one symbol from `state`, refilling from the word before `*words`.
inline uint64_t rans_decode(const RansTable& table, uint32_t& state, const uint8_t*& words) {
  const uint32_t slot = state & (kProbabilityOne - 1);
  const uint64_t info = table.decode[table.symbol_of_slot[slot]];
  const uint32_t next = uint32_t(info & 0xffff) * (state >> kProbabilityBits) + slot -
                        (uint32_t(info >> 16) & 0xffff);
  const uint32_t refilled = next << 16 | load_le<uint16_t>(words - 2);
  const bool low = next < kRansLow;
  words -= low ? 2 : 0;
  state = low ? refilled : next;
  return info;
}

// Encodes one symbol into `state`, spilling to *words (written forwards, read backwards).
inline void rans_encode(const RansTable::EncodeSymbol& symbol, uint32_t& state, uint8_t*& words) {
  const bool spill = state >= uint64_t(symbol.frequency) << 20;
  store_le(words, uint16_t(state));
  words += spill ? 2 : 0;
  const uint32_t x = spill ? state >> 16 : state;
  const uint32_t quotient = uint32_t((unsigned __int128)x * symbol.reciprocal >> 64);
  state = x + symbol.bias + quotient * (kProbabilityOne - symbol.frequency);
}

}  // namespace deltawire
