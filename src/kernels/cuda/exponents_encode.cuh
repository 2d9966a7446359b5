// Blocks of whole arrays, planned and coded. Weights may change under our hands: nothing is ever
// written outside a block's place, and what does not fit is told.
#pragma once

#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/exponents_groups.cuh"
#include "kernels/cuda/status.cuh"

namespace deltawire::cuda {

inline constexpr uint32_t kMostWrittenGroups = (uint32_t{1} << 16) / uint32_t(kGroupElements);

// Element i of the block.
template <KeyForm kForm, NewKind kKind>
__device__ typename FormElement<kForm>::Type block_element(const ExponentsBlock& block,
                                                           uint32_t i) {
  return load_new<typename FormElement<kForm>::Type, kKind>(block.data, block.first + i);
}

template <KeyForm kForm, NewKind kKind>
__device__ uint8_t block_key(const ExponentsBlock& block, uint32_t i) {
  return key_planes::split(kForm, top_of<kForm>(block_element<kForm, kKind>(block, i))).key;
}

// Far keys among elements [begin, end), of those that this thread looks at.
template <KeyForm kForm, NewKind kKind>
__device__ uint32_t count_far(const ExponentsBlock& block, uint8_t base, uint32_t begin,
                              uint32_t end, uint32_t step) {
  uint32_t far = 0;
#pragma unroll 8
  for (uint32_t i = begin; i < end; i += step) {
    far += key_planes::code_of(block_key<kForm, kKind>(block, i), base) == kFarKey ? 1 : 0;
  }
  return far;
}

template <KeyForm kForm, NewKind kKind>
__global__ void __launch_bounds__(kExponentsThreads)
    plan_exponents_blocks(const ExponentsBlock* blocks, ExponentsPlan* plans) {
  __shared__ uint32_t counts[256];
  __shared__ uint32_t best, all_far;
  const ExponentsBlock block = blocks[blockIdx.x];
  const uint32_t n = block.num_elements;
  counts[threadIdx.x] = 0;
  if (threadIdx.x == 0) best = all_far = 0;
  __syncthreads();
  const uint32_t looked_at = uint32_t(key_planes::num_samples(n) * kRowElements);
  for (uint32_t i = threadIdx.x; i < looked_at; i += kExponentsThreads) {
    const uint32_t at =
        uint32_t(key_planes::sample_begin(n, i / kRowElements)) + i % uint32_t(kRowElements);
    if (at < n) atomicAdd(&counts[block_key<kForm, kKind>(block, at)], 1U);
  }
  __syncthreads();
  uint32_t score = 0;
  if (threadIdx.x <= key_planes::max_base(kForm)) {
    uint32_t near = 0;
    for (unsigned k = 0; k < kNearKeys; ++k) near += counts[threadIdx.x + k];
    score = key_planes::base_score(near, uint8_t(threadIdx.x));
  }
  score = __reduce_max_sync(kAllLanes, score);
  if (lane_id() == 0) atomicMax(&best, score);
  __syncthreads();
  const uint8_t base = key_planes::base_of_score(best);
  const uint32_t far = __reduce_add_sync(
      kAllLanes, count_far<kForm, kKind>(block, base, threadIdx.x, n, kExponentsThreads));
  if (lane_id() == 0) atomicAdd(&all_far, far);
  __syncthreads();
  if (threadIdx.x == 0) plans[blockIdx.x] = {base, all_far};
}

// Far keys of the group go to far[begin ... end). False if there are more or fewer.
template <KeyForm kForm, NewKind kKind>
__device__ bool write_group(const ExponentsBlock& block, uint32_t g, uint8_t* far, uint32_t begin,
                            uint32_t end) {
  const key_planes::RowGroup group = key_planes::group_of(block.num_elements, g);
  const key_planes::Planes<uint8_t> out(kForm, block.num_elements, block.coded + 1);
  uint8_t codes[kHalves][kGroupRows], highs[kHalves][kGroupRows];
#pragma unroll
  for (unsigned row = 0; row < kGroupRows; ++row) {
#pragma unroll
    for (unsigned half = 0; half < kHalves; ++half) {
      const uint32_t column = lane_id() + half * kWarp, i = row * group.columns + column;
      key_planes::Split parts{0, 0, 0};
      uint8_t code = 0;
      if (column < group.columns && i < group.count) {
        const uint32_t at = group.begin + i;
        const auto element = block_element<kForm, kKind>(block, at);
        if constexpr (kForm == KeyForm::k8of32) {
          store_element<uint16_t>(out.low, at, uint16_t(element));
        }
        parts = key_planes::split(kForm, top_of<kForm>(element));
        code = key_planes::code_of(parts.key, uint8_t(block.base));
        out.middle[at] = parts.middle;
      }
      codes[half][row] = code;
      highs[half][row] = parts.high;
      const uint32_t is_far = __ballot_sync(kAllLanes, code == kFarKey);
      const uint32_t place = begin + lanes_before(is_far);
      if (code == kFarKey && place < end) far[place] = parts.key;
      begin += __popc(is_far);
    }
  }
  const size_t packed = key_planes::packed_bytes(group.begin);
#pragma unroll
  for (unsigned half = 0; half < kHalves; ++half) {
    const uint32_t column = lane_id() + half * kWarp;
    if (column >= group.columns) continue;
    key_planes::pack_column(codes[half], out.codes + packed + column, group.columns);
    if constexpr (kForm == KeyForm::k5of16) {
      key_planes::pack_column(highs[half], out.high + packed + column, group.columns);
    }
  }
  return begin == end;
}

template <KeyForm kForm, NewKind kKind>
__global__ void __launch_bounds__(kExponentsThreads)
    write_exponents_blocks(const ExponentsBlock* blocks, PatchStatus* status) {
  __shared__ uint32_t far_before[kMostWrittenGroups + 1];
  const ExponentsBlock block = blocks[blockIdx.x];
  const uint32_t n = block.num_elements, groups = num_groups(n);
  if (is_raw<kForm>(block)) {
    for (uint32_t i = threadIdx.x; i < n; i += kExponentsThreads) {
      store_element(block.coded, i, block_element<kForm, kKind>(block, i));
    }
    return;
  }
  const unsigned warp = threadIdx.x / kWarp;
  for (uint32_t g = warp; g < groups; g += kExponentsWarps) {
    const key_planes::RowGroup group = key_planes::group_of(n, g);
    const uint32_t far = __reduce_add_sync(
        kAllLanes, count_far<kForm, kKind>(block, uint8_t(block.base), group.begin + lane_id(),
                                           group.begin + group.count, kWarp));
    if (lane_id() == 0) far_before[g] = far;
  }
  sum_before(far_before, groups);
  const uint32_t front = 1 + uint32_t(key_planes::bytes(kForm, n));
  bool good = front + far_before[groups] == block.coded_bytes;
  if (good) {  // the same in all threads
    if (threadIdx.x == 0) block.coded[0] = uint8_t(block.base);
    for (uint32_t g = warp; g < groups; g += kExponentsWarps) {
      good &= write_group<kForm, kKind>(block, g, block.coded + front, far_before[g],
                                        far_before[g + 1]);
    }
  }
  if (!good) fail(status, PatchError::kWeightsChanged, block.array, block.block);
}

}  // namespace deltawire::cuda
