#include "kernels/cuda/round.h"

#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256, kMostBlocks = 4096;

template <NewKind kKind>
__global__ void round_all(const void* wide, uint64_t first, uint64_t count, uint16_t* out) {
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    out[i] = load_new<uint16_t, kKind>(wide, first + i);
  }
}

}  // namespace

Status round_to_bf16(const void* wide, NewKind kind, uint64_t first, uint64_t count, uint16_t* out,
                     Stream stream) {
  if (count == 0) return {};
  const uint64_t blocks = (count + kThreads - 1) / kThreads;
  const unsigned grid = unsigned(blocks < kMostBlocks ? blocks : kMostBlocks);
  if (kind == NewKind::kF32AsBf16) {
    round_all<NewKind::kF32AsBf16><<<grid, kThreads, 0, stream>>>(wide, first, count, out);
  } else {
    round_all<NewKind::kF16AsBf16><<<grid, kThreads, 0, stream>>>(wide, first, count, out);
  }
  return launched("round_all");
}

}  // namespace deltawire::cuda
