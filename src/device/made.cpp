#include "device/made.h"

#include <algorithm>

#include "device/context.h"
#include "kernels/cuda/fp8_block.h"

namespace deltawire::cuda {

Status DeviceRoom::reserve(const Context& context, uint64_t num_bytes) {
  if (num_bytes <= size()) return {};
  memory_ = nullptr;  // first, so that both need not fit
  size_ = 0;
  const UseDevice use(ContextInternals::of(context).device);
  DW_ASSIGN_OR_RETURN(Buffer taken, Buffer::allocate(Place::kDevice, size_t(num_bytes)));
  const auto owner = std::make_shared<Buffer>(std::move(taken));
  memory_ = std::shared_ptr<uint8_t>(owner, owner->data());
  size_ = num_bytes;
  return {};
}

Status copy_there(void* to, const void* from, uint64_t num_bytes, Stream stream) {
  const UseDevice use(device_of(to).value_or(0));
  DW_RETURN_IF_ERROR(copy(to, from, size_t(num_bytes), stream));
  return wait(stream);
}

Result<bool> quantise_fp8(const fp8::Matrix& matrix, float* scales, uint8_t* elements,
                          Stream stream) {
  const std::optional<int> device = device_of(matrix.weights);
  if (!device) return invalid_argument("weights that are on no device");
  const UseDevice use(*device);
  Fp8Job job;
  job.matrix = matrix;
  job.scales = scales;
  job.elements = elements;
  DW_ASSIGN_OR_RETURN(
      const Buffer room,
      Buffer::allocate(Place::kDevice, sizeof(Fp8Found) + fp8_job_bytes({&job, 1})));
  auto* const found = room.data<Fp8Found>();
  DW_RETURN_IF_ERROR(fill_zero(found, sizeof *found, stream));
  DW_RETURN_IF_ERROR(fp8_blocks({&job, 1}, found + 1, found, stream));
  Fp8Found result;
  DW_RETURN_IF_ERROR(copy(&result, found, sizeof result, stream));
  DW_RETURN_IF_ERROR(wait(stream));
  return result.unbounded == 0;
}

}  // namespace deltawire::cuda
