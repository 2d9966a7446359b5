// A bit stream of a `tight` block as one thread reads it.
#pragma once

#include <cstdint>

namespace deltawire::cuda {

class DeviceBitReader {
 public:
  __device__ DeviceBitReader(const uint8_t* begin, uint32_t at)
      : skew_(uint32_t(reinterpret_cast<uintptr_t>(begin) & 3) * 8),
        words_(reinterpret_cast<const uint32_t*>(begin - (skew_ / 8))),
        at_(at) {}

  // count <= 32. May look at seven bytes past the last bit.
  __device__ uint32_t get(unsigned count) {
    const uint32_t from = at_ + skew_;
    const uint32_t* word = words_ + (from >> 5);
    const uint32_t bits = __funnelshift_r(word[0], word[1], from & 31);
    at_ += count;
    return count == 32 ? bits : bits & ((1U << count) - 1);
  }
  __device__ uint64_t get_long(unsigned count) {
    if (count <= 32) return get(count);
    const uint64_t low = get(32);
    return low | uint64_t(get(count - 32)) << 32;
  }
  __device__ uint32_t num_bits() const { return at_; }

 private:
  uint32_t skew_;
  const uint32_t* words_;
  uint32_t at_;
};

}  // namespace deltawire::cuda
