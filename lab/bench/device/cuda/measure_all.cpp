#include "lab/bench/device/cuda/measures.h"

#include <span>

namespace deltawire::cli {

Status measure_all(DeviceModel* model) {
  using Measure = Status (*)(DeviceModel*);
  static constexpr Measure kSimulated[] = {measure_bounds,  measure_diff,   measure_fp8,
                                           measure_gaps,    measure_tight,  measure_exponents,
                                           measure_digests, measure_pinned, measure_baselines};
  // What depends on the weights.
  static constexpr Measure kRecorded[] = {measure_bounds, measure_diff,      measure_gaps,
                                          measure_tight,  measure_exponents, measure_units};
  DW_RETURN_IF_ERROR(model->make_weights());
  for (const Measure measure :
       model->is_recorded() ? std::span<const Measure>(kRecorded) : kSimulated) {
    DW_RETURN_IF_ERROR(measure(model));
  }
  return {};
}

}  // namespace deltawire::cli
