// Coded blocks of whole arrays, checked and decoded.
#pragma once

#include "kernels/cuda/exponents_groups.cuh"
#include "kernels/cuda/status.cuh"

namespace deltawire::cuda {

inline constexpr uint32_t kMostReadGroups = (uint32_t{1} << 20) / uint32_t(kGroupElements);

// Three-bit values of a lane's columns; zero where the group has none.
struct LaneValues {
  uint8_t at[kHalves][kGroupRows];

  __device__ void load(const uint8_t* packed, const key_planes::RowGroup& group) {
#pragma unroll
    for (unsigned half = 0; half < kHalves; ++half) {
      const uint32_t column = lane_id() + half * kWarp;
      if (column < group.columns) {
        key_planes::unpack_column(packed + column, group.columns, at[half]);
      } else {
#pragma unroll
        for (unsigned row = 0; row < kGroupRows; ++row) at[half][row] = 0;
      }
    }
  }

  // Calls body(value, i) for element i of the group, i < group.count, and rest(value) for what is
  // behind its last element.
  template <class Body, class Rest>
  __device__ void for_each(const key_planes::RowGroup& group, const Body& body,
                           const Rest& rest) const {
#pragma unroll
    for (unsigned row = 0; row < kGroupRows; ++row) {
#pragma unroll
      for (unsigned half = 0; half < kHalves; ++half) {
        const uint32_t column = lane_id() + half * kWarp, i = row * group.columns + column;
        if (column < group.columns && i < group.count) {
          body(at[half][row], i);
        } else {
          rest(at[half][row]);
        }
      }
    }
  }
};

// Far keys of a group, all lanes together. `*good` is unset if something stands behind its last
// element.
__device__ inline uint32_t count_far_codes(const uint8_t* codes, const key_planes::RowGroup& group,
                                           bool* good) {
  LaneValues values;
  values.load(codes + key_planes::packed_bytes(group.begin), group);
  uint32_t far = 0;
  values.for_each(
      group, [&](uint8_t code, uint32_t) { far += code == kFarKey ? 1 : 0; },
      [&](uint8_t code) { *good &= code == 0; });
  return __reduce_add_sync(kAllLanes, far);
}

template <KeyForm kForm>
__global__ void __launch_bounds__(kExponentsThreads)
    check_exponents_blocks(const ExponentsBlock* blocks, PatchStatus* status) {
  __shared__ uint32_t all_far;
  const ExponentsBlock block = blocks[blockIdx.x];
  if (is_raw<kForm>(block)) return;
  const uint32_t n = block.num_elements, groups = num_groups(n);
  const uint32_t front = 1 + uint32_t(key_planes::bytes(kForm, n));
  const key_planes::Planes<const uint8_t> in(kForm, n, block.coded + 1);
  bool good = true;
  if (threadIdx.x == 0) all_far = 0;
  __syncthreads();
  for (uint32_t g = threadIdx.x / kWarp; g < groups; g += kExponentsWarps) {
    const key_planes::RowGroup group = key_planes::group_of(n, g);
    const uint32_t far = count_far_codes(in.codes, group, &good);
    if (lane_id() == 0) atomicAdd(&all_far, far);
    if constexpr (kForm == KeyForm::k5of16) (void)count_far_codes(in.high, group, &good);
  }
  for (uint32_t i = front + threadIdx.x; i < block.coded_bytes; i += kExponentsThreads) {
    good &= key_planes::is_far(kForm, block.coded[i], uint8_t(block.base));
  }
  __syncthreads();
  good &= all_far == block.coded_bytes - front;
  if (!good) fail(status, PatchError::kKeysDoNotFit, block.array, block.block);
}

// `far`: the keys of this group and of those behind it, up to `far_end`.
template <KeyForm kForm>
__device__ void join_group(const ExponentsBlock& block, uint32_t g, const uint8_t* far,
                           const uint8_t* far_end) {
  using Element = typename FormElement<kForm>::Type;
  const key_planes::RowGroup group = key_planes::group_of(block.num_elements, g);
  const key_planes::Planes<const uint8_t> in(kForm, block.num_elements, block.coded + 1);
  const size_t packed = key_planes::packed_bytes(group.begin);
  LaneValues codes, highs{};
  codes.load(in.codes + packed, group);
  if constexpr (kForm == KeyForm::k5of16) highs.load(in.high + packed, group);
#pragma unroll
  for (unsigned row = 0; row < kGroupRows; ++row) {
#pragma unroll
    for (unsigned half = 0; half < kHalves; ++half) {
      const uint32_t column = lane_id() + half * kWarp, i = row * group.columns + column;
      const bool here = column < group.columns && i < group.count;
      const uint8_t code = codes.at[half][row];
      const uint32_t is_far = __ballot_sync(kAllLanes, here && code == kFarKey);
      if (here) {
        uint8_t key = uint8_t(block.base + code);
        if (code == kFarKey) {
          const uint8_t* const place = far + lanes_before(is_far);
          key = place < far_end ? *place : 0;
        }
        const uint32_t at = group.begin + i;
        Element element = key_planes::join(kForm, {key, in.middle[at], highs.at[half][row]});
        if constexpr (kForm == KeyForm::k8of32) {
          element = element << 16 | load_element<uint16_t>(in.low, at);
        }
        store_element<Element>(block.data, block.first + at, element);
      }
      far += __popc(is_far);
    }
  }
}

template <KeyForm kForm>
__global__ void __launch_bounds__(kExponentsThreads)
    join_exponents_blocks(const ExponentsBlock* blocks, const PatchStatus* status) {
  using Element = typename FormElement<kForm>::Type;
  __shared__ uint32_t far_before[kMostReadGroups + 1];
  if (status->code != 0) return;
  const ExponentsBlock block = blocks[blockIdx.x];
  const uint32_t n = block.num_elements, groups = num_groups(n);
  if (is_raw<kForm>(block)) {
    for (uint32_t i = threadIdx.x; i < n; i += kExponentsThreads) {
      store_element<Element>(block.data, block.first + i, load_element<Element>(block.coded, i));
    }
    return;
  }
  const key_planes::Planes<const uint8_t> in(kForm, n, block.coded + 1);
  const unsigned warp = threadIdx.x / kWarp;
  bool unused = true;
  for (uint32_t g = warp; g < groups; g += kExponentsWarps) {
    const uint32_t far = count_far_codes(in.codes, key_planes::group_of(n, g), &unused);
    if (lane_id() == 0) far_before[g] = far;
  }
  sum_before(far_before, groups);
  const uint8_t* const far = block.coded + 1 + key_planes::bytes(kForm, n);
  for (uint32_t g = warp; g < groups; g += kExponentsWarps) {
    join_group<kForm>(block, g, far + far_before[g], block.coded + block.coded_bytes);
  }
}

}  // namespace deltawire::cuda
