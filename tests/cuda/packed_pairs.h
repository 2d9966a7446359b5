// Arrays of packed four-bit codes, a few of which move by one: the use case of `adaptive`.
#pragma once

#include "cuda/contexts.h"

namespace deltawire::cuda {

// Integers of `width` bytes; one code in `one_in` changes.
inline HostPair make_packed_pair(uint64_t seed, unsigned width, size_t n, uint64_t one_in) {
  Random random(seed);
  HostPair pair{width, std::vector<uint8_t>(n * width), {}};
  for (uint8_t& byte : pair.old_bytes) byte = uint8_t(random());
  pair.new_bytes = pair.old_bytes;
  for (uint8_t& byte : pair.new_bytes) {
    for (const unsigned shift : {0U, 4U}) {
      if (random() % one_in != 0) continue;
      const unsigned code = (byte >> shift) + ((random() & 1) != 0 ? 1 : 15);
      byte = uint8_t((byte & ~(15U << shift)) | (code & 15) << shift);
    }
  }
  return pair;
}

inline DType integer_of(unsigned width) {
  return width == 1   ? DType::kU8
         : width == 2 ? DType::kI16
         : width == 4 ? DType::kI32
                      : DType::kI64;
}

inline BothSides packed_sides(uint64_t seed, unsigned width, size_t n, uint64_t one_in) {
  BothSides sides(make_packed_pair(seed, width, n, one_in));
  sides.dtype = integer_of(width);
  return sides;
}

}  // namespace deltawire::cuda
