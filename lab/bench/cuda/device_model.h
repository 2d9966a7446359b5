// A model's weights before and after a step on the GPU, and what `bench cuda` measures of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "codec/cuda/device_codec.h"
#include "codec/cuda/workspace.h"
#include "device/cuda.h"
#include "lab/bench/cases.h"

namespace deltawire::cli {

struct DeviceRow {
  std::string what;
  double milliseconds;
  double bound;  // milliseconds that the machine needs at least; 0: none
  std::string note;
};

struct DeviceModel {
  DeviceModel(const Context& given_context, const BenchOptions& given)
      : context(given_context), options(given), pool(given_context.threads) {}

  Status make_weights();
  bool is_recorded() const { return !options.old_path.empty(); }  // not simulated
  // Milliseconds of the device, the best of several.
  Result<double> best(const std::function<Status()>& body) const;
  // Internal unless the old weights have become the new ones.
  Status check_equal(const std::string& what) const;

  uint16_t* old_tensor(size_t i) const { return old_weights.data<uint16_t>() + begins[i]; }
  uint16_t* new_tensor(size_t i) const { return new_weights.data<uint16_t>() + begins[i]; }

  static constexpr uint64_t kScratchBytes = uint64_t{256} << 20;
  const Context& context;
  const BenchOptions& options;
  std::string source;  // of the weights
  ThreadPool pool;
  cuda::Workspace workspace;
  cuda::DeviceInfo info;
  std::vector<uint64_t> sizes, begins;  // of tensors, in elements
  std::vector<Layout> layouts;
  uint64_t span = 0, num_elements = 0, num_changed = 0;
  cuda::Buffer old_weights, new_weights;
  std::vector<cuda::DevicePair> pairs;

  double read_both = 0, diff = 0;  // milliseconds that others are compared with
  double tight_apply[2] = {};      // decoded once; all or nothing
  double bus_gigabytes = 0;        // a second, copied from pinned host memory
  std::vector<DeviceRow> rows;

 private:
  Status lay_out();  // from `sizes`
  Status simulate();
  Status load();  // checkpoints, enlarged
};

// Each adds its rows.
Status measure_bounds(DeviceModel* model);     // copying, and reading both arrays
Status measure_diff(DeviceModel* model);       // and with a cast from f32
Status measure_fp8(DeviceModel* model);        // quantised and compared in one pass
Status measure_gaps(DeviceModel* model);       // encode, apply
Status measure_tight(DeviceModel* model);      // the same
Status measure_units(DeviceModel* model);      // tight, had all steps been +1 or -1
Status measure_exponents(DeviceModel* model);  // whole tensors
Status measure_digests(DeviceModel* model);    // sum128
Status measure_pinned(DeviceModel* model);     // a snapshot in pinned host memory
Status measure_baselines(DeviceModel* model);  // what others would do

}  // namespace deltawire::cli
