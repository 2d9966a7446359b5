#include "device/group_codes.h"

#include "device/context.h"
#include "kernels/cuda/group_codes.h"

namespace deltawire::cuda {

Status make_group_codes(const GroupJob& job, Stream stream) {
  const std::optional<int> device = device_of(job.weights);
  if (!device) return invalid_argument("weights that are on no device");
  const UseDevice use(*device);
  return quantise_groups(job, stream);
}

}  // namespace deltawire::cuda
