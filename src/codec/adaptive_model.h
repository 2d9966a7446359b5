// What `adaptive` learns of an array while it codes it: how far changes lie apart, and what becomes
// of an element. The same code encodes and decodes: a Coder is given values and gives them back.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>

#include "codec/range_coder.h"

namespace deltawire::adaptive {

// A number of `Bits` bits, the highest first, each bit given those before it.
template <unsigned Bits>
class BitTree {
 public:
  template <class Coder>
  uint32_t code(Coder* coder, uint32_t value) {
    uint32_t node = 1;
    for (unsigned i = Bits; i-- > 0;) {
      node = node << 1 | uint32_t(coder->bit(&nodes_[node], (value >> i & 1) != 0));
    }
    return node - (1U << Bits);
  }

  // How likely each number is, before any has been seen; no weight is zero.
  void expect(const std::array<uint32_t, size_t{1} << Bits>& weights) {
    std::array<uint32_t, size_t{2} << Bits> sums;
    std::copy(weights.begin(), weights.end(), sums.begin() + weights.size());
    for (size_t node = weights.size(); --node > 0;) {
      sums[node] = sums[2 * node] + sums[2 * node + 1];
      nodes_[node] = AdaptiveBit(65536 * sums[2 * node] / sums[node]);
    }
  }

 private:
  std::array<AdaptiveBit, size_t{1} << Bits> nodes_;
};

// A number: its length in bits, then what is below its leading bit. `Learned` of those bits, the
// highest, are not of equal chance.
template <unsigned Learned>
class Number {
 public:
  template <class Coder>
  uint64_t code(Coder* coder, uint64_t value) {
    const unsigned length = length_.code(coder, uint32_t(std::bit_width(value)));
    if (length < 2) return length;
    unsigned left = length - 1;
    uint64_t result = 1;
    for (unsigned i = 0; i < Learned && left > 0; ++i) {
      AdaptiveBit* const model = &below_[length][size_t(result)];
      --left;
      result = result << 1 | uint64_t(coder->bit(model, (value >> left & 1) != 0));
    }
    return result << left | coder->raw(value & ((uint64_t{1} << left) - 1), left);
  }

  void expect_lengths(const std::array<uint32_t, 64>& weights) { length_.expect(weights); }

 private:
  BitTree<6> length_;
  std::array<std::array<AdaptiveBit, size_t{1} << Learned>, 64> below_;
};

// Elements between two changes. Where a scale has changed, codes of its group change together:
// after a short gap another is likely.
class Gaps {
 public:
  // Before the first: as if the changes lay anywhere, each with the same chance.
  Gaps(uint64_t num_elements, uint64_t count) {
    const int mean = int(std::bit_width(num_elements / count));
    std::array<uint32_t, 64> weights;
    weights.fill(1);
    for (int i = 0; i < int(std::size(kWeights)); ++i) {
      const int length = mean + kLongest - i;
      if (length >= 0 && length < 64) weights[size_t(length)] = kWeights[i];
    }
    for (Number<2>& gaps : gaps_) gaps.expect_lengths(weights);
  }

  template <class Coder>
  uint64_t code(Coder* coder, uint64_t gap) {
    gap = gaps_[was_short_].code(coder, gap);
    was_short_ = gap < kShort;
    return gap;
  }

 private:
  // Of 256, by length: two more than that of the mean, one more, ...
  static constexpr int kLongest = 2;
  static constexpr uint32_t kWeights[] = {17, 50, 64, 52, 33, 19, 10, 5, 3};
  static constexpr uint64_t kShort = 32;
  Number<2> gaps_[2];
  bool was_short_ = false;
};

inline constexpr uint32_t kMostlyNear = 57344;  // seven of eight steps are +1 or -1, at first

// A code of four bits, given the old one. Steps are counted in a circle of 16.
class Nibbles {
 public:
  static constexpr unsigned kBits = 4;

  // The new code; `new_code` if it is known, which differs from the old one.
  template <class Coder>
  uint64_t code(Coder* coder, uint64_t old_code, uint64_t new_code) {
    Context& of = of_code_[old_code];
    uint32_t step = uint32_t(new_code - old_code) & 15;
    if (!coder->bit(&of.far, step != 1 && step != 15)) {
      step = coder->bit(&of.minus, step == 15) ? 15 : 1;
    } else {
      step = steps_[(old_code & 7) == 0].code(coder, step);
    }
    return (old_code + step) & 15;
  }

 private:
  struct Context {
    AdaptiveBit far{kMostlyNear}, minus;
  };
  Context of_code_[16];
  BitTree<4> steps_[2];  // of zeros, of either sign in floats, and of others
};

// An element of `Bits` bits. Its top bit is the sign of floats.
template <unsigned Bits>
class Elements {
 public:
  static constexpr unsigned kBits = Bits;

  template <class Coder>
  uint64_t code(Coder* coder, uint64_t old_value, uint64_t new_value) {
    Context& of = of_sign_[old_value >> (kBits - 1) & 1];
    const uint64_t step = (new_value - old_value) & kMask;
    bool minus = (step >> (kBits - 1)) != 0;
    uint64_t size = minus ? (0 - step) & kMask : step;
    if (!coder->bit(&of.far, size != 1)) {
      size = 1;
    } else {
      size = sizes_.code(coder, size - 1) + 1;
    }
    minus = coder->bit(&of.minus, minus);
    return (minus ? old_value - size : old_value + size) & kMask;
  }

 private:
  static constexpr uint64_t kMask = ~uint64_t{0} >> (64 - Bits);
  struct Context {
    AdaptiveBit far{kMostlyNear}, minus;
  };
  Context of_sign_[2];
  Number<1> sizes_;
};

}  // namespace deltawire::adaptive
