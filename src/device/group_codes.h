// Groups of weights on a device as small codes. A build without CUDA says Unsupported.
#pragma once

#include "device/cuda.h"
#include "kernels/group_codes.h"

namespace deltawire::cuda {

// Does not wait.
Status make_group_codes(const GroupJob& job, Stream stream);

}  // namespace deltawire::cuda
