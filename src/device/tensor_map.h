// A mapped tensor in the words of kernels: as few dimensions as its boxes allow.
#pragma once

#include <array>
#include <vector>

#include "deltawire/cuda.h"
#include "kernels/cuda/mapped.h"

namespace deltawire::cuda {

struct TensorMap {
  uint64_t num_elements = 0;  // of the tensor, as codecs count them
  unsigned num_dims = 1;
  std::array<uint64_t, kMaxMappedDims> shape{};
  std::vector<MappedPiece> pieces;  // none of them empty
};

// InvalidArgument, with the number of the box, unless all boxes lie in the tensor and have memory
// and as many strides as it has dimensions.
Result<TensorMap> map_tensor(const MappedTensor& tensor);

}  // namespace deltawire::cuda
