// `deltawire bench --device cuda`: what the GPU path does, against the bounds of the machine and
// against what others would do.
#pragma once

#include <string>

#include "cli/context.h"

namespace deltawire::cli {

struct DeviceBenchOptions {
  std::string model = "8b";
  double density = 0.012;
  unsigned repeat = 5;
  uint64_t scratch_mib = 256;
};

int device_bench(const Context& context, const DeviceBenchOptions& options);

}  // namespace deltawire::cli
