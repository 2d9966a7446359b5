// A thread takes eight weights: the smallest and the largest of a group come together from the
// lanes beside it, and its codes are a word.
#include "kernels/cuda/group_codes.h"

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/eights.cuh"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr float kFp4Largest = 6, kFp8Largest = fp8::kLargest;

// Arithmetic of what weights are rounded to: a result is rounded once more.
template <bool kNarrow>
__device__ float rounded(float value) {
  if constexpr (kNarrow) return __bfloat162float(__float2bfloat16_rn(value));
  return value;
}

__device__ uint8_t e4m3(float value) {
  return uint8_t(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3));
}
__device__ float of_e4m3(uint8_t bits) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)));
}

// To nearest, every second tie up: the even code.
__device__ uint32_t e2m1(float value) {
  const float size = fabsf(value);
  const uint32_t code = (size > 0.25F) + (size >= 0.75F) + (size > 1.25F) + (size >= 1.75F) +
                        (size > 2.5F) + (size >= 3.5F) + (size > 5.0F);
  return code | (value < 0 ? 8U : 0U);
}

__device__ uint32_t int4(float value) {  // as a number from 0 on
  return uint32_t(int(rintf(fminf(fmaxf(value, -8.0F), 7.0F))) + 8);
}

// F32 of a biased exponent, 0 being 2^-127.
__device__ float power_of_two(int exponent) {
  return __int_as_float(exponent > 0 ? exponent << 23 : 1 << 22);
}

// ---- formats: settle() makes of a group's range what its codes need; code() makes one.

template <bool kNarrow>
struct Int4Group {
  static constexpr bool kBytes = false;
  float scale;

  __device__ void settle(const GroupJob& job, float low, float high, uint64_t group, bool first) {
    scale = rounded<kNarrow>(__fdiv_rn(fmaxf(-low, high), 7.5F));
    finish(job, group, first);
  }
  __device__ uint32_t code(float weight) const {
    return int4(rounded<kNarrow>(__fdiv_rn(weight, scale)));
  }
  __device__ void finish(const GroupJob& job, uint64_t group, bool first) {
    if (scale == 0) scale = kNarrow ? 0x1p-7F : 0x1p-23F;  // eps
    if (!first) return;
    if constexpr (kNarrow) {
      static_cast<uint16_t*>(job.scales)[group] = uint16_t(__float_as_uint(scale) >> 16);
    } else {
      static_cast<float*>(job.scales)[group] = scale;
    }
  }
};

template <bool kNarrow>
struct Int4AsymmetricGroup : Int4Group<kNarrow> {
  float zero;

  __device__ void settle(const GroupJob& job, float low, float high, uint64_t group, bool first) {
    low = fminf(low, 0.0F);
    const float range = rounded<kNarrow>(__fsub_rn(fmaxf(high, 0.0F), low));
    this->scale = rounded<kNarrow>(__fdiv_rn(range, 15.0F));
    // Of a group of zeros it is 0 / 0; as an integer that is 0, in the library too.
    zero = rounded<kNarrow>(__fsub_rn(-8.0F, rounded<kNarrow>(__fdiv_rn(low, this->scale))));
    zero = isnan(zero) ? 0.0F : rintf(fminf(fmaxf(zero, -8.0F), 7.0F));
    if (first) job.zero_points[group] = int8_t(zero);
    this->finish(job, group, first);
  }
  __device__ uint32_t code(float weight) const {
    return int4(
        rounded<kNarrow>(__fadd_rn(rounded<kNarrow>(__fdiv_rn(weight, this->scale)), zero)));
  }
};

template <bool>
struct Nvfp4Group {
  static constexpr bool kBytes = false;
  float divisor;

  __device__ void settle(const GroupJob& job, float low, float high, uint64_t group, bool first) {
    const float of_tensor = *job.of_tensor;
    float scale = __fdiv_rn(fmaxf(-low, high), __fmul_rn(kFp4Largest, of_tensor));
    if (scale == 0) scale = 1;
    const uint8_t bits = e4m3(fminf(fmaxf(scale, 0x1p-9F), kFp8Largest));
    divisor = __fmul_rn(of_e4m3(bits), of_tensor);
    if (first) static_cast<uint8_t*>(job.scales)[group] = bits;
  }
  __device__ uint32_t code(float weight) const { return e2m1(__fdiv_rn(weight, divisor)); }
};

template <bool kNarrow>
struct CompressedNvfp4Group {
  static constexpr bool kBytes = false;
  float divisor;

  __device__ void settle(const GroupJob& job, float low, float high, uint64_t group, bool first) {
    const float inverse = *job.of_tensor;
    const float largest = rounded<kNarrow>(__fdiv_rn(fmaxf(-low, high), kFp4Largest));
    uint8_t bits = e4m3(fminf(__fmul_rn(largest, inverse), kFp8Largest));
    if (bits == 0) bits = e4m3(0.125F);
    divisor = __fdiv_rn(of_e4m3(bits), inverse);
    if (first) static_cast<uint8_t*>(job.scales)[group] = bits;
  }
  __device__ uint32_t code(float weight) const { return e2m1(__fdiv_rn(weight, divisor)); }
};

// The smallest power that keeps all of the group in range.
__device__ int ceil_exponent(float largest, float of_format) {
  const uint32_t bits = __float_as_uint(__fdiv_rn(largest, of_format));
  const uint32_t exponent = bits >> 23;
  // Up to 2^-127 F32 has denormals: there the power itself has a fraction.
  return int(exponent + ((bits & 0x7fffff) > (exponent == 0 ? 1U << 22 : 0) ? 1 : 0));
}
// From one and a half times a power of two, and a bit of BF16 less, on: the next one.
__device__ int round_exponent(float largest, int of_format) {
  return int((__float_as_uint(largest) + (1U << 21)) >> 23) - of_format;
}

template <bool>
struct Mxfp4Group {
  static constexpr bool kBytes = false;
  float power;

  __device__ void settle(const GroupJob& job, float low, float high, uint64_t group, bool first) {
    const int exponent = min(max(round_exponent(fmaxf(-low, high), 2), 0), 254);
    power = power_of_two(exponent);
    if (first) static_cast<uint8_t*>(job.scales)[group] = uint8_t(exponent);
  }
  __device__ uint32_t code(float weight) const { return e2m1(__fdiv_rn(weight, power)); }
};

template <bool kCeil>
struct Mxfp8Group {
  static constexpr bool kBytes = true;
  float power;

  __device__ void settle(const GroupJob& job, float low, float high, uint64_t group, bool first) {
    const float largest = fmaxf(-low, high);
    const int wanted = kCeil ? ceil_exponent(largest, kFp8Largest) : round_exponent(largest, 8);
    const int exponent = min(max(wanted, 0), 254);
    power = power_of_two(exponent);
    if (first) static_cast<uint8_t*>(job.scales)[group] = uint8_t(exponent);
  }
  __device__ uint32_t code(float weight) const { return e4m3(__fdiv_rn(weight, power)); }
};

template <class Group, bool kNarrow>
__global__ void __launch_bounds__(kThreads) quantise(GroupJob job) {
  const uint64_t eight = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool there = eight * kEight < job.num_elements;  // or none of the lanes of its group
  float weights[kEight] = {};
  if (there) load_eight<kNarrow>(job.weights, eight * kEight, weights);
  float low = weights[0], high = weights[0];
#pragma unroll
  for (unsigned j = 1; j < kEight; ++j) {
    low = fminf(low, weights[j]);
    high = fmaxf(high, weights[j]);
  }
  const unsigned lanes = job.group / kEight;
  for (unsigned step = 1; step < lanes; step *= 2) {
    low = fminf(low, __shfl_xor_sync(kAllLanes, low, step));
    high = fmaxf(high, __shfl_xor_sync(kAllLanes, high, step));
  }
  if (!there) return;
  Group group;
  group.settle(job, low, high, eight / lanes, eight % lanes == 0);
  uint64_t word = 0;
  constexpr unsigned kBits = Group::kBytes ? 8 : 4;
#pragma unroll
  for (unsigned j = 0; j < kEight; ++j) word |= uint64_t{group.code(weights[j])} << (kBits * j);
  if constexpr (Group::kBytes) {
    static_cast<uint64_t*>(job.codes)[eight] = word;
  } else {
    static_cast<uint32_t*>(job.codes)[eight] = uint32_t(word);
  }
}

template <class Narrow, class Wide>
Status launch(const GroupJob& job, Stream stream) {
  const uint64_t eights = job.num_elements / kEight, blocks = (eights + kThreads - 1) / kThreads;
  if (blocks > INT32_MAX) return invalid_argument("too many weights for one call");
  const auto kernel = job.narrow ? quantise<Narrow, true> : quantise<Wide, false>;
  kernel<<<unsigned(blocks), kThreads, 0, stream>>>(job);
  return launched("quantise");
}

}  // namespace

Status quantise_groups(const GroupJob& job, Stream stream) {
  if (!can_group(job.group) || job.num_elements % job.group != 0) {
    return invalid_argument("groups of " + std::to_string(job.group) + " weights on a GPU");
  }
  if (job.num_elements == 0) return {};
  switch (job.format) {
    case GroupCodes::kInt4:
      return launch<Int4Group<true>, Int4Group<false>>(job, stream);
    case GroupCodes::kInt4Asymmetric:
      return launch<Int4AsymmetricGroup<true>, Int4AsymmetricGroup<false>>(job, stream);
    case GroupCodes::kNvfp4:
      return launch<Nvfp4Group<true>, Nvfp4Group<true>>(job, stream);
    case GroupCodes::kCompressedNvfp4:
      return launch<CompressedNvfp4Group<true>, CompressedNvfp4Group<false>>(job, stream);
    case GroupCodes::kMxfp4:
      return launch<Mxfp4Group<true>, Mxfp4Group<true>>(job, stream);
    case GroupCodes::kMxfp8Ceil:
      return launch<Mxfp8Group<true>, Mxfp8Group<true>>(job, stream);
    default:
      return launch<Mxfp8Group<false>, Mxfp8Group<false>>(job, stream);
  }
}

}  // namespace deltawire::cuda
