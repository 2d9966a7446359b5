// Word keys of sum128 as a table, for kernels that have no registers to keep them in: to make them
// anew takes longer.
#pragma once

#include "kernels/cuda/sum_words.cuh"

namespace deltawire::cuda {

__device__ const sum128::WordKeys kWordKeys{};

// Each time anew: nothing is kept from one call to the next.
__device__ inline ThreadWordKeys load_word_keys() {
  ThreadWordKeys words;
#pragma unroll
  for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
    asm volatile("ld.global.nc.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words.keys[lane][0]), "=l"(words.keys[lane][1])
                 : "l"(__cvta_generic_to_global(&kWordKeys.keys[lane][2 * lane_id()])));
  }
  return words;
}

}  // namespace deltawire::cuda
