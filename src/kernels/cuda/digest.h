// xxh3-128 of many arrays at once, up to where the host finishes them. Blocks of 1 KiB are summed
// at the speed of memory; the sums then go through one chain for each array, all chains side by
// side. The longest chain takes 17 to 20 ns (H200) for each of its blocks, whatever is beside it.
//
// Arrays are gone through in turns, each of them in as many: sums of a turn fit a piece of memory,
// and all chains end together.
#pragma once

#include <cstdint>

#include "kernels/cuda/diff.h"

namespace deltawire::cuda {

inline constexpr uint64_t kSumBytes = 64;      // of a block
inline constexpr uint64_t kDigestTail = 1024;  // bytes at the end that the host looks at

struct DigestArray {
  const void* data;
  uint64_t num_bytes;   // as they are hashed: of bf16 where wider floats are rounded
  uint64_t num_blocks;  // to be chained
  uint64_t per_turn;    // of them
  uint64_t first_sum;   // where its sums lie among those of a turn
  NewKind kind;
};

// All pointers are to device memory.
struct DigestWork {
  const DigestArray* arrays;
  uint32_t num_arrays;
  uint64_t num_sums;       // of a turn: of all arrays, first_sum and per_turn ascending with them
  const uint64_t* secret;  // 24 words
  uint64_t* lanes;         // eight for each array, the state of its chain: kStart before
  uint8_t* tails;          // kDigestTail for each array
};

// What the blocks of a turn add. `sums` has room for num_sums.
Status sum_blocks(const DigestWork& work, uint64_t turn, uint64_t* sums, Stream stream);
// Takes the sums of a turn through the chains. Turns come in order.
Status chain_blocks(const DigestWork& work, uint64_t turn, const uint64_t* sums, Stream stream);
// The last bytes of each array, or all that it has.
Status copy_tails(const DigestWork& work, Stream stream);

}  // namespace deltawire::cuda
