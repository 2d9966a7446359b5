// `deltawire bench --device cuda`: what the GPU path does, against the bounds of the machine and
// against what others would do.
#pragma once

#include <string>

#include "cli/context.h"

namespace deltawire::cli {

struct DeviceBenchOptions {
  std::string model = "8b";
  std::string old_path, new_path;  // checkpoints to take the place of a simulated model
  uint64_t copies = 1;             // of each of their tensors
  double density = 0.012;
  unsigned repeat = 5;
  uint64_t scratch_mib = 256;
};

int device_bench(const Context& context, const DeviceBenchOptions& options);

}  // namespace deltawire::cli
