#include "cli/bench/device/cuda/measures.h"

namespace deltawire::cli {

Status measure_all(DeviceModel* model) {
  DW_RETURN_IF_ERROR(model->make_weights());
  for (const auto measure :
       {measure_bounds, measure_diff, measure_diff_plan, measure_gaps, measure_tight,
        measure_mapped, measure_digests, measure_pinned, measure_baselines}) {
    DW_RETURN_IF_ERROR(measure(model));
  }
  return {};
}

}  // namespace deltawire::cli
