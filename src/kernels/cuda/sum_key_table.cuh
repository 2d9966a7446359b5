// Word keys of sum128 as a table, for kernels that have no registers to keep them in: to make them
// anew takes longer.
#pragma once

#include "kernels/cuda/sum_words.cuh"

namespace deltawire::cuda {

__device__ const sum128::WordKeys kWordKeys{};

// Of words `column` and `column` + 1 of a segment, an even number; thread t of those who have a
// whole segment wants 2 t. Each time anew: nothing is kept from one call to the next.
__device__ inline ThreadWordKeys load_word_keys(unsigned column) {
  ThreadWordKeys words;
#pragma unroll
  for (unsigned lane = 0; lane < sum128::kLanes; ++lane) {
    asm volatile("ld.global.nc.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words.keys[lane][0]), "=l"(words.keys[lane][1])
                 : "l"(__cvta_generic_to_global(&kWordKeys.keys[lane][column])));
  }
  return words;
}

}  // namespace deltawire::cuda
