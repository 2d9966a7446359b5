// Random numbers that are the same on every machine: xoshiro256++, seeded by splitmix64. No
// std:: distribution and no libm, whose results differ between implementations.
#pragma once

#include <bit>
#include <cstdint>

namespace deltawire::cli {

class Random {
 public:
  explicit Random(uint64_t seed) noexcept {
    for (uint64_t& word : state_) {
      uint64_t z = seed += 0x9e3779b97f4a7c15;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      word = z ^ (z >> 31);
    }
  }

  uint64_t next() noexcept {
    const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  double uniform() noexcept { return double(next() >> 11) * 0x1p-53; }  // in [0, 1)

 private:
  uint64_t state_[4];
};

}  // namespace deltawire::cli
