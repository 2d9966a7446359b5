#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/tight_encode.h"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

using namespace deltawire::tight;

constexpr unsigned kThreads = 256;

template <class T>
__device__ uint32_t key_of(const SampleArray& array, T value) {
  return uint32_t(value >> array.key_shift) & array.key_mask;
}

template <class T, NewKind kKind>
__global__ void __launch_bounds__(kThreads) count_keys(const SampleArray* arrays, KeyCounts* out) {
  __shared__ uint32_t counts[512];  // population, then changes
  const SampleArray array = arrays[blockIdx.y];
  if (blockIdx.x >= array.taken) return;
  for (unsigned i = threadIdx.x; i < 512; i += kThreads) counts[i] = 0;
  __syncthreads();
  const uint64_t start = (blockIdx.x * array.num_pieces / array.taken) * kSamplePiece;
  const uint64_t end = min(start + kSamplePiece, array.num_elements);
  for (uint64_t i = start + threadIdx.x; i < end; i += kThreads) {
    const T old_value = load_element<T>(array.old_data, i);
    const uint32_t key = key_of(array, old_value);
    atomicAdd(&counts[key], 1U);
    if (load_new<T, kKind>(array.new_data, i) != old_value) atomicAdd(&counts[256 + key], 1U);
  }
  __syncthreads();
  uint32_t* const to = out[blockIdx.y].population;  // `changed` follows
  for (unsigned i = threadIdx.x; i < 512; i += kThreads) {
    if (counts[i] != 0) atomicAdd(&to[i], counts[i]);
  }
}

// Few keys are frequent, and lanes that count the same one wait for each other: every key has
// several counters, and neighbours use different ones.
constexpr uint32_t kCopies = 8;
constexpr uint32_t kInFlight = 4;  // elements of a thread whose loads are under way

template <class T, NewKind kKind>
__global__ void __launch_bounds__(kThreads)
    count_values(const SampleArray* arrays, const SampleBlock* blocks, uint32_t* out) {
  extern __shared__ uint32_t counts[];
  __shared__ uint32_t population[256 * kCopies];
  constexpr uint32_t kTokens = kNumValueTokens<T>;
  uint32_t* const changed = counts + 256;
  uint32_t* const tokens = counts + 512;
  uint32_t* const escapes = tokens + 256 * kTokens;
  constexpr uint32_t kAll = num_value_counts(sizeof(T));
  for (uint32_t i = threadIdx.x; i < kAll; i += kThreads) counts[i] = 0;
  for (uint32_t i = threadIdx.x; i < 256 * kCopies; i += kThreads) population[i] = 0;
  __syncthreads();
  const SampleBlock block = blocks[blockIdx.x];
  const SampleArray array = arrays[block.array];
  const BlockPlace place = block.place;
  const uint32_t end = block.num_elements;
  const auto count = [&](T old_value, T new_value) {
    const uint32_t key = key_of(array, old_value);
    atomicAdd(&population[key * kCopies + threadIdx.x % kCopies], 1U);
    if (old_value != new_value) {
      const Step<T> step = make_step<T>(old_value, T(new_value - old_value));
      atomicAdd(&changed[key], 1U);
      atomicAdd(&tokens[key * kTokens + step.token], 1U);
      if (step.token == kEscapeToken<T>) atomicAdd(&escapes[step.escape], 1U);
    }
  };
  uint32_t i = threadIdx.x;
  for (; i + (kInFlight - 1) * kThreads < end; i += kInFlight * kThreads) {
    T old_values[kInFlight], new_values[kInFlight];
#pragma unroll
    for (uint32_t k = 0; k < kInFlight; ++k) {
      const uint64_t at = place(i + k * kThreads);
      old_values[k] = load_element<T>(array.old_data, at);
      new_values[k] = load_new<T, kKind>(array.new_data, at);
    }
#pragma unroll
    for (uint32_t k = 0; k < kInFlight; ++k) count(old_values[k], new_values[k]);
  }
  for (; i < end; i += kThreads) {
    const uint64_t at = place(i);
    count(load_element<T>(array.old_data, at), load_new<T, kKind>(array.new_data, at));
  }
  __syncthreads();
  for (uint32_t key = threadIdx.x; key < 256; key += kThreads) {
    for (uint32_t k = 0; k < kCopies; ++k) counts[key] += population[key * kCopies + k];
  }
  __syncthreads();
  uint32_t* const to = out + uint64_t{block.array} * kAll;
  for (uint32_t i = threadIdx.x; i < kAll; i += kThreads) {
    if (counts[i] != 0) atomicAdd(&to[i], counts[i]);
  }
}

template <class T, NewKind kKind>
Status launch_keys(const SampleArray* arrays, uint32_t num_arrays, KeyCounts* out, Stream stream) {
  for (uint32_t first = 0; first < num_arrays; first += 65535) {  // the most a grid is high
    const dim3 grid(kMaxSampledPieces, min(num_arrays - first, 65535U));
    count_keys<T, kKind><<<grid, kThreads, 0, stream>>>(arrays + first, out + first);
    DW_RETURN_IF_ERROR(launched("count_keys"));
  }
  return {};
}

template <class T, NewKind kKind>
Status launch_values(const SampleArray* arrays, const SampleBlock* blocks, uint32_t num_blocks,
                     uint32_t* out, Stream stream) {
  constexpr size_t kShared = num_value_counts(sizeof(T)) * sizeof(uint32_t);
  DW_CUDA(cudaFuncSetAttribute(count_values<T, kKind>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               int(kShared)));
  count_values<T, kKind><<<num_blocks, kThreads, kShared, stream>>>(arrays, blocks, out);
  return launched("count_values");
}

}  // namespace

Status sample_keys(const SampleArray* arrays, uint32_t num_arrays, unsigned width, NewKind kind,
                   KeyCounts* out, Stream stream) {
  if (num_arrays == 0) return {};
  return with_kind(width, kind, [&]<class T, NewKind kKind>() {
    return launch_keys<T, kKind>(arrays, num_arrays, out, stream);
  });
}

Status sample_values(const SampleArray* arrays, const SampleBlock* blocks, uint32_t num_blocks,
                     unsigned width, NewKind kind, uint32_t* out, Stream stream) {
  if (num_blocks == 0) return {};
  return with_kind(width, kind, [&]<class T, NewKind kKind>() {
    return launch_values<T, kKind>(arrays, blocks, num_blocks, out, stream);
  });
}

}  // namespace deltawire::cuda
