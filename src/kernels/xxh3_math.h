// The arithmetic of xxh3-128 that the CPU and a GPU share: what a block of 1 KiB adds to the eight
// lanes of the state is a sum that does not depend on the blocks before it; only the scramble
// between two blocks makes a chain. Written from the published specification (doc/xxhash_spec.md of
// xxHash). All of it is constexpr: nvcc compiles it for both sides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace deltawire::xxh3 {

inline constexpr size_t kLanes = 8;
inline constexpr size_t kStripeBytes = 8 * kLanes, kBlockStripes = 16;
inline constexpr size_t kBlockBytes = kBlockStripes * kStripeBytes;
inline constexpr size_t kShortBytes = 240;  // up to here another algorithm is used

inline constexpr uint64_t kPrime32_1 = 0x9e3779b1, kPrime32_2 = 0x85ebca77, kPrime32_3 = 0xc2b2ae3d;
inline constexpr uint64_t kPrime64_1 = 0x9e3779b185ebca87, kPrime64_2 = 0xc2b2ae3d27d4eb4f,
                          kPrime64_3 = 0x165667b19e3779f9, kPrime64_4 = 0x85ebca77c2b2ae63,
                          kPrime64_5 = 0x27d4eb2f165667c5;

using Lanes = std::array<uint64_t, kLanes>;
inline constexpr Lanes kStart = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                 kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};

// The default secret as words. Lane i of stripe n of a block has word n + i as its key; the
// scramble has the last eight words.
using Secret = std::array<uint64_t, 24>;
inline constexpr size_t kScrambleKey = 16;

// Blocks that are chained: all that end before the last byte.
constexpr uint64_t num_blocks(uint64_t size_bytes) {
  return size_bytes <= kShortBytes ? 0 : (size_bytes - 1) / kBlockBytes;
}

// What a word adds to its own lane. To the lane beside it (i ^ 1) it adds itself.
constexpr uint64_t folded(uint64_t word, uint64_t key) {
  const uint64_t mixed = word ^ key;
  return uint64_t{uint32_t(mixed)} * (mixed >> 32);
}

constexpr uint64_t scrambled(uint64_t lane, uint64_t key) {
  return (lane ^ (lane >> 47) ^ key) * kPrime32_1;
}

}  // namespace deltawire::xxh3
