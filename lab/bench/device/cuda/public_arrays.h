// The model in the words of device/cuda.h.
#pragma once

#include "lab/bench/device/cuda/device_model.h"

namespace deltawire::cli {

inline cuda::Pair public_pair(const DeviceModel& model, size_t i) {
  return {{DType::kBF16, model.old_tensor(i), model.sizes[i] * 2},
          {DType::kBF16, model.new_tensor(i)}};
}

inline Result<cuda::Context> make_context(const DeviceModel& model) {
  cuda::ContextOptions options;
  options.scratch_bytes = model.options.scratch_mib << 20;
  return cuda::Context::create(options);
}

}  // namespace deltawire::cli
