// Lanes of sum128 of arrays on the device.
#pragma once

#include <array>
#include <vector>

#include "device/context.h"
#include "kernels/cuda/sum.h"

namespace deltawire::cuda {

// All arrays in one pass; their first chunks are set here. On the device in use.
Status sum_arrays(Context::Impl& impl, std::vector<SumArray> arrays, SumPass pass, Stream stream,
                  std::array<uint64_t, 2>* lanes);

}  // namespace deltawire::cuda
