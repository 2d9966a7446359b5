// Limits of the resources that an operation may use.
#pragma once

#include <cstdint>
#include <optional>

struct CUstream_st;  // a cudaStream_t

namespace deltawire {

struct Limits {
  unsigned threads = 0;                       // 0: one per core
  uint64_t memory_bytes = uint64_t{2} << 30;  // beside the weights, mapped files and snapshots
};

// Limits for tensors in a GPU's memory.
struct CudaOptions {
  CUstream_st* stream = nullptr;  // what the tensors are made on; work goes there too
  uint64_t scratch_bytes = uint64_t{256} << 20;  // of the GPU's memory, beside weights and snapshot
  // Of the GPU's memory, on top: a replica's, for what it has decoded and commit() is to write,
  // some 5 bytes for each element. What does not fit is decoded again in the pause. None: a
  // quarter of what is free when it is needed.
  std::optional<uint64_t> kept_bytes = {};
  // Of weights that a publisher compares at a time: enough to keep the GPU busy, few enough for the
  // network to have work early.
  uint64_t wave_bytes = uint64_t{4} << 30;
};

}  // namespace deltawire
