// Small codes on a GPU: INT4, NVFP4, MXFP4, MXFP8. The bits of python/deltawire/quantize, which
// says the same in torch.
#pragma once

#include "kernels/cuda/memory.h"
#include "kernels/group_codes.h"

namespace deltawire::cuda {

Status quantise_groups(const GroupJob& job, Stream stream);

}  // namespace deltawire::cuda
