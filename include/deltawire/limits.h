// What work may take of a machine.
#pragma once

#include <cstdint>

struct CUstream_st;  // a cudaStream_t

namespace deltawire {

struct Limits {
  unsigned threads = 0;                       // 0: one per core
  uint64_t memory_bytes = uint64_t{2} << 30;  // beside the weights, mapped files and snapshots
};

// For tensors in a GPU's memory.
struct CudaOptions {
  CUstream_st* stream = nullptr;  // what the tensors are made on; work goes there too
  uint64_t scratch_bytes = uint64_t{256} << 20;  // of the GPU's memory, beside weights and snapshot
};

}  // namespace deltawire
