// The status word that checking kernels set and writing kernels obey.
#pragma once

#include "kernels/cuda/lists.h"

namespace deltawire::cuda {

// The first to fail is the one that is told.
__device__ inline void fail(PatchStatus* status, PatchError error, uint32_t array, uint64_t where) {
  if (atomicCAS(&status->code, 0U, uint32_t(error)) == 0U) {
    status->array = array;
    status->where = where;
  }
}

}  // namespace deltawire::cuda
