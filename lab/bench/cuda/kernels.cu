#include "lab/bench/cuda/kernels.h"

#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_select.cuh>

#include "kernels/bf16.h"
#include "kernels/cuda/check.cuh"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 512, kGrid = 132 * 16;

__device__ uint64_t mixed(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

__device__ uint64_t first_index() { return uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ uint64_t stride() { return uint64_t{gridDim.x} * blockDim.x; }

__global__ void simulate(uint16_t* old_weights, uint16_t* new_weights, uint64_t n, uint64_t seed,
                         float rate) {
  for (uint64_t i = first_index(); i < n; i += stride()) {
    const uint64_t r = mixed((i + seed) * 2 + 1), s = mixed(r + 77);
    const float u = float(uint32_t(r) >> 8) * 0x1p-24f + 1e-8f, v = float(r >> 40) * 0x1p-24f;
    const float weight = 0.02f * sqrtf(-2 * logf(u)) * cospif(2 * v);
    const uint16_t old_bits = uint16_t(bf16_of_f32(__float_as_uint(weight)));
    const float chance = fminf(0.7f, rate / (fabsf(weight) + 1e-12f));
    const bool changes = float(uint32_t(s)) * 0x1p-32f < chance;
    old_weights[i] = old_bits;
    new_weights[i] = changes ? uint16_t(old_bits + ((s >> 40 & 1) != 0 ? 1 : -1)) : old_bits;
  }
}

__global__ void shorten_steps(const uint16_t* old_weights, uint16_t* new_weights, uint64_t n) {
  for (uint64_t i = first_index(); i < n; i += stride()) {
    const int16_t step = int16_t(new_weights[i] - old_weights[i]);
    if (step != 0) new_weights[i] = uint16_t(old_weights[i] + (step > 0 ? 1 : -1));
  }
}

__global__ void widen_all(const uint16_t* weights, float* wide, uint64_t n) {
  for (uint64_t i = first_index(); i < n; i += stride()) {
    wide[i] = __uint_as_float(uint32_t(weights[i]) << 16);
  }
}

__global__ void copy_all(const uint4* from, uint4* to, uint64_t n) {
  for (uint64_t i = first_index(); i < n; i += stride()) to[i] = from[i];
}

__global__ void read_all(const uint4* a, uint64_t num_a, const uint4* b, uint64_t num_b,
                         uint32_t* sink) {
  uint32_t x = 0;
  for (uint64_t i = first_index(); i < num_a; i += stride()) x |= a[i].x ^ a[i].y ^ a[i].z ^ a[i].w;
  for (uint64_t i = first_index(); i < num_b; i += stride()) x |= b[i].x ^ b[i].y ^ b[i].z ^ b[i].w;
  if (x == 0x12345) *sink = x;  // never, but the compiler cannot know
}

struct Differs {
  const uint16_t *a, *b;
  __device__ bool operator()(int32_t i) const { return a[i] != b[i]; }
};

__global__ void gather_all(const uint16_t* from, const int32_t* positions, const int32_t* count,
                           uint16_t* values) {
  for (uint64_t i = first_index(); i < uint64_t(*count); i += stride()) {
    values[i] = from[positions[i]];
  }
}

__global__ void put_all(uint16_t* weights, const int32_t* positions, const uint16_t* values,
                        uint64_t count) {
  for (uint64_t i = first_index(); i < count; i += stride()) weights[positions[i]] = values[i];
}

__global__ void count_all(const uint8_t* a, const uint8_t* b, uint64_t n,
                          unsigned long long* count) {
  unsigned long long own = 0;
  for (uint64_t i = first_index(); i < n; i += stride()) own += a[i] != b[i] ? 1 : 0;
  if (own != 0) atomicAdd(count, own);
}

}  // namespace

Status simulate_step(uint16_t* old_weights, uint16_t* new_weights, uint64_t n, uint64_t seed,
                     float rate, Stream stream) {
  simulate<<<kGrid, kThreads, 0, stream>>>(old_weights, new_weights, n, seed, rate);
  return launched("simulate");
}

Status make_unit_steps(const uint16_t* old_weights, uint16_t* new_weights, uint64_t n,
                       Stream stream) {
  shorten_steps<<<kGrid, kThreads, 0, stream>>>(old_weights, new_weights, n);
  return launched("shorten_steps");
}

Status widen(const uint16_t* weights, float* wide, uint64_t n, Stream stream) {
  widen_all<<<kGrid, kThreads, 0, stream>>>(weights, wide, n);
  return launched("widen_all");
}

Status copy_kernel(const void* from, void* to, uint64_t num_bytes, Stream stream) {
  copy_all<<<kGrid, kThreads, 0, stream>>>(static_cast<const uint4*>(from), static_cast<uint4*>(to),
                                           num_bytes / 16);
  return launched("copy_all");
}

Status read_both(const void* a, const void* b, uint64_t bytes_a, uint64_t bytes_b, uint32_t* sink,
                 Stream stream) {
  read_all<<<kGrid, kThreads, 0, stream>>>(static_cast<const uint4*>(a), bytes_a / 16,
                                           static_cast<const uint4*>(b), bytes_b / 16, sink);
  return launched("read_all");
}

size_t select_scratch(uint64_t n) {
  size_t bytes = 0;
  (void)cub::DeviceSelect::If(nullptr, bytes, thrust::counting_iterator<int32_t>(0),
                              static_cast<int32_t*>(nullptr), static_cast<int32_t*>(nullptr),
                              int32_t(n), Differs{});
  return bytes;
}

Status select_changes(const uint16_t* old_weights, const uint16_t* new_weights, uint64_t n,
                      void* scratch, int32_t* positions, uint16_t* values, int32_t* count,
                      Stream stream) {
  size_t bytes = select_scratch(n);
  DW_CUDA(cub::DeviceSelect::If(scratch, bytes, thrust::counting_iterator<int32_t>(0), positions,
                                count, int32_t(n), Differs{old_weights, new_weights}, stream));
  gather_all<<<kGrid, kThreads, 0, stream>>>(new_weights, positions, count, values);
  return launched("gather_all");
}

Status put_values(uint16_t* weights, const int32_t* positions, const uint16_t* values,
                  uint64_t count, Stream stream) {
  put_all<<<kGrid, kThreads, 0, stream>>>(weights, positions, values, count);
  return launched("put_all");
}

Status count_different(const void* a, const void* b, uint64_t num_bytes, unsigned long long* count,
                       Stream stream) {
  count_all<<<kGrid, kThreads, 0, stream>>>(static_cast<const uint8_t*>(a),
                                            static_cast<const uint8_t*>(b), num_bytes, count);
  return launched("count_all");
}

}  // namespace deltawire::cuda
