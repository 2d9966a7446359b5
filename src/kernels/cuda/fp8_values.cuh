// Weights as elements of FP8: the CPU's bits (kernels/fp8_math.h), by the device's conversions.
#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/elements.cuh"
#include "kernels/fp8_math.h"

namespace deltawire::cuda {

__device__ inline uint32_t rounded_bits(WideFloat from, uint32_t bits) {
  return from == WideFloat::kF32AsBf16 ? bf16_of_f32(bits) << 16 : bits;
}

// Of an F32 that weight i is rounded to.
__device__ inline uint32_t load_bits(WideFloat from, const void* data, uint64_t i) {
  if (from == WideFloat::kBf16) return uint32_t(load_element<uint16_t>(data, i)) << 16;
  return rounded_bits(from, load_element<uint32_t>(data, i));
}

__device__ inline uint32_t two_elements(float low, float high, float inverse) {
  const float2 both = {__fmul_rn(low, inverse), __fmul_rn(high, inverse)};
  return __nv_cvt_float2_to_fp8x2(both, __NV_SATFINITE, __NV_E4M3);
}

}  // namespace deltawire::cuda
