// The arithmetic of sum128, the digest that adds up: docs/format.md, "sum128", has the same rules
// in words. All of it is constexpr: nvcc compiles it for both sides.
//
// An array is words of eight bytes. Each word adds a term to either of two lanes. A term depends on
// the word and on where it lies, on nothing else: words may be added in any order, by anyone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deltawire::sum128 {

inline constexpr size_t kLanes = 2, kWordBytes = 8;
// Words that share a segment key; their word keys are those of every other segment.
inline constexpr size_t kSegmentWords = 64, kSegmentBytes = kSegmentWords * kWordBytes;

inline constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // of SplitMix64
// Digits of pi.
inline constexpr uint64_t kWordSeed = 0x243f6a8885a308d3, kSegmentSeed0 = 0x13198a2e03707344,
                          kSegmentSeed1 = 0xa4093822299f31d0, kLengthSeed = 0x082efa98ec4e6c89;

// How SplitMix64 makes a number of its state.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint64_t word_key(size_t lane, size_t column) {
  return mix(kWordSeed + (kSegmentWords * lane + column + 1) * kStep);
}

// Odd: a segment's sum is never lost.
constexpr uint64_t segment_key(size_t lane, uint64_t segment) {
  return mix((lane == 0 ? kSegmentSeed0 : kSegmentSeed1) + (segment + 1) * kStep) | 1;
}

// Halves of the word plus halves of the key, each modulo 2^32, times each other.
constexpr uint64_t product(uint64_t word, uint64_t key) {
  return uint64_t{uint32_t(word) + uint32_t(key)} * (uint32_t(word >> 32) + uint32_t(key >> 32));
}

constexpr uint64_t term(size_t lane, uint64_t position, uint64_t word) {
  return segment_key(lane, position / kSegmentWords) *
         product(word, word_key(lane, position % kSegmentWords));
}

struct WordKeys {
  alignas(64) uint64_t keys[kLanes][kSegmentWords] = {};
  constexpr WordKeys() {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      for (size_t column = 0; column < kSegmentWords; ++column) {
        keys[lane][column] = word_key(lane, column);
      }
    }
  }
};

}  // namespace deltawire::sum128
