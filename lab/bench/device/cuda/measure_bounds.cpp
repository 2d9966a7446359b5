#include <fmt/format.h>

#include "lab/bench/device/cuda/kernels.h"
#include "lab/bench/device/cuda/measures.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::Place;

Status measure_bounds(DeviceModel* model) {
  const uint64_t bytes = model->span * 2;
  const uint8_t *const old_bytes = model->old_weights.data(), *const new_bytes =
                                                                  model->new_weights.data();
  DW_ASSIGN_OR_RETURN(const Buffer to, Buffer::allocate(Place::kDevice, bytes));
  DW_ASSIGN_OR_RETURN(const double copying, model->best([&] {
    return cuda::copy_kernel(old_bytes, to.data(), bytes, nullptr);
  }));
  model->rows.push_back(
      {"copy", copying, 0,
       fmt::format("{:.2f} TB/s read and written", 2e-9 * double(bytes) / copying)});
  DW_ASSIGN_OR_RETURN(const Buffer sink, Buffer::allocate(Place::kDevice, 16));
  DW_ASSIGN_OR_RETURN(model->read_both, model->best([&] {
    return cuda::read_both(old_bytes, new_bytes, bytes, bytes, sink.data<uint32_t>(), nullptr);
  }));
  model->rows.push_back({"read both", model->read_both, 0,
                         fmt::format("{:.2f} TB/s", 2e-9 * double(bytes) / model->read_both)});
  return {};
}

}  // namespace deltawire::cli
