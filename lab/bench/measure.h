// Runs one pipeline over all tensors, again and again, and proves every result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "lab/bench/data.h"
#include "lab/bench/pipeline.h"

namespace deltawire::cli {

// How far resident memory rose above its level at reset(): VmHWM - VmRSS, the allocator's free
// memory given back first. Counts payloads and thread stacks, not the weights. Empty where the
// kernel does not let a process reset its peak.
class MemoryPeak {
 public:
  void reset();
  std::optional<uint64_t> extra_bytes() const;

 private:
  std::optional<uint64_t> before_;
};

struct Speed {
  unsigned threads = 1;
  uint64_t payload_bytes = 0;
  double publish_seconds = 0, apply_seconds = 0;                   // the best
  std::optional<uint64_t> publish_extra_bytes, apply_extra_bytes;  // of the first repetition
};

// Unsupported when the pipeline cannot carry the data. Internal when what apply made of the old
// weights is not the new ones.
Result<Speed> measure(const Pipeline& pipeline, const BenchData& data, ThreadPool* pool,
                      Effort effort, const Progress& progress);

}  // namespace deltawire::cli
