// Weights as small codes, with a scale for each group of neighbours in a row: what a GPU is asked
// for.
#pragma once

#include <bit>
#include <cstdint>

namespace deltawire {

enum class GroupCodes : uint8_t {
  kInt4,
  kInt4Asymmetric,
  kNvfp4,            // ModelOpt's
  kCompressedNvfp4,  // compressed-tensors'
  kMxfp4,            // "round": compressed-tensors'
  kMxfp8Ceil,
  kMxfp8Round,
};

// All on the device. Weights are finite and lie at a multiple of sixteen bytes; groups follow each
// other without a gap.
struct GroupJob {
  GroupCodes format;
  const void* weights;
  bool narrow;             // BF16; else F32
  uint64_t num_elements;   // a multiple of the group
  uint32_t group;          // a power of two, 8 to 256
  const float* of_tensor;  // NVFP4: the tensor's scale, or its inverse
  void* codes;             // eight elements are four bytes; of MXFP8 eight
  void* scales;            // one for each group: as the weights are rounded, E4M3, or E8M0
  int8_t* zero_points;     // of kInt4Asymmetric, one for each group
};

// Whether a warp can have whole groups, a thread eight of their weights.
constexpr bool can_group(uint64_t group) {
  return std::has_single_bit(group) && group >= 8 && group <= 256;
}

}  // namespace deltawire
