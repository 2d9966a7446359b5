// What `bench --device cuda` measures, one file for each. Every function adds its rows.
#pragma once

#include "lab/bench/device/cuda/device_model.h"

namespace deltawire::cli {

Status measure_all(DeviceModel* model);

Status measure_bounds(DeviceModel* model);     // copying, and reading both arrays
Status measure_diff(DeviceModel* model);       // and with a cast from f32
Status measure_gaps(DeviceModel* model);       // encode, apply
Status measure_tight(DeviceModel* model);      // the same
Status measure_units(DeviceModel* model);      // tight, had all steps been +1 or -1
Status measure_fp8(DeviceModel* model);        // quantised and compared in one pass
Status measure_exponents(DeviceModel* model);  // whole tensors
Status measure_digests(DeviceModel* model);    // sum128
Status measure_pinned(DeviceModel* model);     // a snapshot in pinned host memory
Status measure_baselines(DeviceModel* model);  // what others would do

}  // namespace deltawire::cli
