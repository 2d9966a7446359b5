// CUDA's errors as ours: which call failed, and what the runtime says about it.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "deltawire/status.h"

namespace deltawire::cuda {

inline Status to_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // told here, not again by the next launch
  int device = -1;
  (void)cudaGetDevice(&device);
  const std::string text = std::string(call) + " on device " + std::to_string(device) + ": " +
                           cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  return Status(error == cudaErrorMemoryAllocation ? Code::kOutOfMemory : Code::kDevice, text);
}

// A launch reports bad parameters at once; what goes wrong in a kernel comes out of wait().
inline Status launched(const char* kernel) { return to_status(cudaGetLastError(), kernel); }

}  // namespace deltawire::cuda

#define DW_CUDA(call) DW_RETURN_IF_ERROR(::deltawire::cuda::to_status((call), #call))
