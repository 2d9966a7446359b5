// Where two batches of arrays differ, in order, with nothing for the host to decide in between: for
// callers that want lists on the device, and for CUDA graphs.
#pragma once

#include <cstdint>

#include "kernels/cuda/batch.h"
#include "kernels/cuda/diff.h"

namespace deltawire::cuda {

// On the device.
struct OrderedLists {
  uint64_t* positions;  // in their array
  void* values;         // new ones, of the batch's width
  uint64_t capacity;    // of both; where more is found the lists are not to be used
  uint64_t* first;      // for each array where its changes begin, and then how many there are
};

size_t ordered_diff_state_bytes(const PairBatch& batch) noexcept;

// One read of each array, one launch for all of them and a small one. `kinds` has one for each
// array; `state` is of the size above. Both are on the device, and of one diff at a time.
Status ordered_diff(const PairBatch& batch, const NewKind* kinds, void* state,
                    const OrderedLists& out, Stream stream);

}  // namespace deltawire::cuda
