// A model's weights before and after a step, on the GPU, and what has been measured of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "codec/cuda/device_codec.h"
#include "codec/cuda/workspace.h"
#include "device/cuda.h"
#include "lab/bench/device_bench.h"

namespace deltawire::cli {

struct Row {
  std::string what;
  double milliseconds;
  double bound;  // milliseconds that the machine needs at least; 0: none
  std::string note;
};

struct DeviceModel {
  DeviceModel(const DeviceBenchOptions& given, unsigned threads) : options(given), pool(threads) {}

  Status make_weights();
  bool is_recorded() const { return !options.old_path.empty(); }  // not simulated
  // Milliseconds of the device, the best of several. `prepare` is not counted.
  Result<double> best(const std::function<Status()>& body,
                      const std::function<Status()>& prepare = {}) const;
  // Internal unless the old weights have become the new ones.
  Status check_equal(const std::string& what) const;

  uint16_t* old_tensor(size_t i) const { return old_weights.data<uint16_t>() + begins[i]; }
  uint16_t* new_tensor(size_t i) const { return new_weights.data<uint16_t>() + begins[i]; }

  const DeviceBenchOptions& options;
  std::string source;  // of the weights
  ThreadPool pool;
  cuda::Workspace workspace;
  cuda::DeviceInfo info;
  std::vector<uint64_t> sizes, begins;  // of tensors, in elements
  uint64_t span = 0, num_elements = 0, num_changed = 0;
  cuda::Buffer old_weights, new_weights;
  std::vector<cuda::DevicePair> pairs;

  double read_both = 0, diff = 0;  // milliseconds that others are compared with
  double tight_apply[2] = {};      // decoded once; all or nothing
  double bus_gigabytes = 0;        // a second, copied from pinned host memory
  std::vector<Row> rows;

 private:
  Status lay_out();  // from `sizes`
  Status simulate();
  Status load();  // checkpoints, enlarged
};

}  // namespace deltawire::cli
