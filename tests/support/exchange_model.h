// Arrays of all widths with lists of changes, and the expected results of an exchange.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "live/exchange.h"

namespace deltawire {

struct ExchangedArray {
  unsigned width = 2;
  std::vector<uint8_t> before, after;
  std::vector<uint32_t> offsets;
  std::vector<uint8_t> values;

  ExchangeList list(uint8_t* data, Memory memory) const {
    return {{data, before.size()}, width, memory, offsets, values};
  }
};

// Each element changes with the given probability, the first and the last one always.
inline ExchangedArray make_exchanged(uint64_t seed, unsigned width, size_t n, double density) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  ExchangedArray made{width, std::vector<uint8_t>(n * width), {}, {}, {}};
  for (uint8_t& byte : made.before) byte = uint8_t(random());
  made.after = made.before;
  for (size_t i = 0; i < n; ++i) {
    if (i != 0 && i != n - 1 && uniform(random) >= density) continue;
    const uint64_t value = random();
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&value);
    made.offsets.push_back(uint32_t(i));
    made.values.insert(made.values.end(), bytes, bytes + width);
    std::memcpy(made.after.data() + i * width, &value, width);
  }
  return made;
}

}  // namespace deltawire
