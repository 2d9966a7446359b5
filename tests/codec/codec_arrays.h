// Input arrays for codecs: odd addresses, guard bytes around them, every kind of value.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "codec/codec.h"

namespace deltawire {

// The layouts of f8_e4m3, bf16, f32 and f64.
inline Layout layout_of(unsigned width) {
  switch (width) {
    case 1:
      return {1, 3, 0x0f};
    case 2:
      return {2, 7, 0xff};
    case 4:
      return {4, 23, 0xff};
    default:
      return {8, 55, 0xff};
  }
}

// Bytes at an odd address between two walls of guard bytes.
class WalledBuffer {
 public:
  explicit WalledBuffer(size_t size = 0) : size_(size), bytes_(size + kFront + kBack, kWall) {}
  explicit WalledBuffer(Bytes content) : WalledBuffer(content.size()) {
    if (!content.empty()) std::memcpy(bytes_.data() + kFront, content.data(), content.size());
  }

  MutableBytes span() { return {bytes_.data() + kFront, size_}; }
  Bytes span() const { return {bytes_.data() + kFront, size_}; }
  bool walls_stand() const {
    const auto is_wall = [](uint8_t byte) { return byte == kWall; };
    return std::all_of(bytes_.begin(), bytes_.begin() + kFront, is_wall) &&
           std::all_of(bytes_.end() - kBack, bytes_.end(), is_wall);
  }

 private:
  static constexpr size_t kFront = 33, kBack = 64;  // 33: unaligned for every width but 1
  static constexpr uint8_t kWall = 0xa5;
  size_t size_;
  std::vector<uint8_t> bytes_;
};

struct ArrayPair {
  WalledBuffer old_bytes, new_bytes;
  uint64_t num_changed = 0;
};

// splitmix64: arrays are made by the million elements.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t operator()() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

inline uint64_t get_element(Bytes bytes, unsigned width, size_t i) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + i * width, width);
  return value;
}

inline void set_element(MutableBytes bytes, unsigned width, size_t i, uint64_t value) {
  std::memcpy(bytes.data() + i * width, &value, width);
}

// A changed element: mostly one step up or down, but also a flipped sign (+0 to -0), infinities and
// NaNs with payloads, all ones, zero, or arbitrary bits.
inline uint64_t changed_value(uint64_t value, unsigned width, Random& random) {
  const uint64_t mask = ~uint64_t{0} >> (64 - 8 * width);
  const uint64_t sign = mask ^ (mask >> 1);
  uint64_t changed = value;
  const uint64_t draw = random();
  switch (draw % 16) {
    case 0:
      changed = value ^ sign;
      break;
    case 1:
      changed = 0;
      break;
    case 2:
      changed = sign;
      break;
    case 3:
      changed = mask;
      break;
    case 4:
      changed = mask & (uint64_t{0x7f80} << (8 * width - 16 + (width == 1 ? 8 : 0)));
      break;
    case 5:
      changed = mask & (uint64_t{0x7fc1} << (8 * width - 16 + (width == 1 ? 8 : 0)));
      break;
    case 6:
      changed = random();
      break;
    default:
      changed = draw % 2 != 0 ? value + 1 : value - 1;
      break;
  }
  changed &= mask;
  return changed == value ? (value ^ 1) & mask : changed;
}

// Old elements are like small weights with a few special values in between.
inline ArrayPair make_arrays(unsigned width, size_t n, double density, uint64_t seed) {
  Random random(seed);
  ArrayPair pair{WalledBuffer(n * width), WalledBuffer(n * width), 0};
  const uint64_t mask = ~uint64_t{0} >> (64 - 8 * width);
  const uint64_t specials[] = {0, mask, mask ^ (mask >> 1), mask >> 1};
  const auto threshold = uint32_t(density * 4294967295.0);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t draw = random();
    // Two draws are summed so that the top bits of elements are unevenly distributed, like
    // exponents.
    uint64_t value = ((draw & (mask >> 2)) + ((draw >> 7) & (mask >> 3))) & mask;
    if (draw % 64 == 0) value = specials[(draw >> 8) % 4];
    set_element(pair.old_bytes.span(), width, i, value);
    const bool changes = density >= 1 || (density > 0 && uint32_t(random()) < threshold);
    if (changes) value = changed_value(value, width, random);
    set_element(pair.new_bytes.span(), width, i, value);
    pair.num_changed += changes;
  }
  return pair;
}

// Equality that reports the first difference instead of printing two arrays.
inline ::testing::AssertionResult same_bytes(Bytes expected, Bytes actual) {
  if (expected.size() != actual.size()) {
    return ::testing::AssertionFailure()
           << "sizes: expected " << expected.size() << ", got " << actual.size();
  }
  if (expected.empty() || std::memcmp(expected.data(), actual.data(), expected.size()) == 0) {
    return ::testing::AssertionSuccess();
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == actual[i]) continue;
    return ::testing::AssertionFailure()
           << "byte " << i << ": expected " << int{expected[i]} << ", got " << int{actual[i]};
  }
  return ::testing::AssertionSuccess();
}

}  // namespace deltawire
