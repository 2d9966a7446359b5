// Writes simulated checkpoints: all versions of a run, tensor by tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "deltawire/delta.h"
#include "deltawire/status.h"
#include "lab/simulate/simulation.h"

namespace deltawire::cli {

struct SimulationPlan {
  std::vector<SimulatedTensor> model;
  double step_size = 0;
  uint64_t num_steps = 0, seed = 1;
  uint64_t num_shards = 1;  // at most one per tensor
  bool overwrite = false;
  unsigned threads = 0;
  Progress progress;
};

struct SimulationReport {
  std::vector<std::filesystem::path> paths;  // of the versions
  std::vector<uint64_t> num_changed;         // by each step
  uint64_t size_bytes = 0;                   // of all files
};

// Writes num_steps + 1 checkpoints into `folder`, which is made when missing: v0.safetensors and so
// on, or folders v0/ and so on when there are several shards. The bits do not depend on `threads`.
// Memory is one tensor per thread, beside pages of the files. All versions appear at the end; after
// a failure there are none.
Result<SimulationReport> write_simulation(const std::filesystem::path& folder,
                                          const SimulationPlan& plan);

}  // namespace deltawire::cli
