#include "kernels/cuda/convert.h"

#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256, kMostBlocks = 4096;

template <class T, NewKind kKind>
__global__ void convert_all(const void* data, uint64_t first, uint64_t count, T* out) {
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    out[i] = load_new<T, kKind>(data, first + i);
  }
}

}  // namespace

Status convert(const void* data, NewKind kind, uint64_t first, uint64_t count, void* out,
               Stream stream) {
  if (count == 0) return {};
  const uint64_t blocks = (count + kThreads - 1) / kThreads;
  const unsigned grid = unsigned(blocks < kMostBlocks ? blocks : kMostBlocks);
  return with_kind(converted_width(kind), kind, [&]<class T, NewKind kKind>() {
    convert_all<T, kKind><<<grid, kThreads, 0, stream>>>(data, first, count, static_cast<T*>(out));
    return launched("convert_all");
  });
}

}  // namespace deltawire::cuda
