// The code tables of `tight`, in integers from first to last.
#include <memory>

#include "codec/tight_format.h"

namespace deltawire::tight {
namespace {

constexpr uint64_t kOne = uint64_t{1} << 32;

// floor(2^(32 - i/16)), the first one short of 2^32 so that it fits.
constexpr uint32_t kRoot16[16] = {
    4294967295, 4112874773, 3938502375, 3771522796, 3611622602, 3458501653, 3311872529, 3171459999,
    3037000499, 2908241642, 2784941737, 2666869344, 2553802833, 2445529971, 2341847523, 2242560871};

// (survival of one element)^gap, Q32.
uint64_t survival(uint64_t one_element, uint32_t gap) {
  uint64_t result = kOne;
  for (uint64_t power = one_element; gap != 0; gap >>= 1, power = power * power >> 32) {
    if ((gap & 1) != 0) result = result * power >> 32;
  }
  return result;
}

// Weights to frequencies >= 1 that sum to kProbabilityOne; the heaviest takes the rounding.
void normalise(const uint64_t* weights, uint32_t count, uint16_t* frequencies) {
  uint64_t sum = 0;
  uint32_t heaviest = 0;
  for (uint32_t i = 0; i < count; ++i) {
    sum += weights[i];
    if (weights[i] > weights[heaviest]) heaviest = i;
  }
  int64_t left = kProbabilityOne;
  for (uint32_t i = 0; i < count; ++i) {
    frequencies[i] = uint16_t(1 + weights[i] * (kProbabilityOne - count) / sum);
    left -= frequencies[i];
  }
  frequencies[heaviest] = uint16_t(frequencies[heaviest] + left);
}

void build_gap_table(uint8_t q, RansTable* table) {
  const uint64_t one_element = 0xffffffffULL - (kRoot16[q % 16] >> (q / 16));
  // Tokens until the rest is rarer than the smallest probability; the rest escapes.
  constexpr uint32_t kAllTokens = 8 + 4 * (kMaxBlockLog2 - 3);
  uint32_t base[kMaxSymbols];
  uint8_t raw_bits[kMaxSymbols];
  uint64_t weights[kMaxSymbols], alive = kOne;
  uint32_t count = 0;
  for (; count < kAllTokens && (count == 0 || alive >= kOne >> kProbabilityBits); ++count) {
    unsigned bits, next_bits;
    base[count] = gap_base(count, &bits);
    raw_bits[count] = uint8_t(bits);
    const uint64_t after = survival(one_element, gap_base(count + 1, &next_bits));
    weights[count] = alive - after;
    alive = after;
  }
  base[count] = 0;
  raw_bits[count] = kMaxBlockLog2;
  weights[count] = alive;
  uint16_t frequencies[kMaxSymbols];
  normalise(weights, count + 1, frequencies);
  table->build(frequencies, count + 1, base, raw_bits);
}

struct GapTables {
  RansTable tables[256];
  GapTables() {
    for (unsigned q = 0; q < 256; ++q) build_gap_table(uint8_t(q), &tables[q]);
  }
};

}  // namespace

const RansTable& gap_table(uint8_t q) {
  static const auto kTables = std::make_unique<GapTables>();
  return kTables->tables[q];
}

void coded_frequencies(const uint8_t* codes, uint32_t num_symbols, uint16_t* frequencies) {
  // 2^(16 + 0.4 i)
  constexpr uint32_t kRoot[5] = {65536, 86475, 114104, 150562, 198668};
  uint64_t weights[kMaxSymbols];
  for (uint32_t i = 0; i < num_symbols; ++i) {
    weights[i] = codes[i] == 0 ? 1 : uint64_t(kRoot[codes[i] % 5]) << (2 * (codes[i] / 5));
  }
  normalise(weights, num_symbols, frequencies);
}

void build_coded_table(const uint8_t* codes, uint32_t num_symbols, RansTable* table) {
  uint16_t frequencies[kMaxSymbols];
  coded_frequencies(codes, num_symbols, frequencies);
  table->build(frequencies, num_symbols, nullptr, nullptr);
}

}  // namespace deltawire::tight
