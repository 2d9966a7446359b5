// How fast this machine reads, and how close to that comes the diff.
#pragma once

#include "base/thread_pool.h"
#include "lab/bench/data.h"

namespace deltawire::cli {

// Bytes per second of both inputs together.
struct Bandwidth {
  unsigned threads = 1;
  double read = 0;          // merely reading them: the best of several plain loops
  double diff_same = 0;     // finding that nothing changed
  double diff_changed = 0;  // finding what changed
};

// The best of several runs each. Leaves the state before in `work`.
Result<Bandwidth> measure_bandwidth(const BenchData& data, ThreadPool* pool, Effort effort,
                                    const Progress& progress);

}  // namespace deltawire::cli
