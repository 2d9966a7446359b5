#include "lab/bench/device_bench.h"

#include "deltawire/status.h"
#ifdef DELTAWIRE_HAVE_CUDA
#include "lab/bench/device/cuda/measures.h"
#include "lab/bench/device/cuda/report.h"
#endif

namespace deltawire::cli {

#ifndef DELTAWIRE_HAVE_CUDA

int device_bench(const Context& context, const DeviceBenchOptions&) {
  return context.fail(unsupported("this deltawire was built without CUDA"));
}

#else

int device_bench(const Context& context, const DeviceBenchOptions& options) {
  DeviceModel model(options, context.threads);
  const Status status = measure_all(&model);
  if (!model.rows.empty()) say_rows(context, model);  // what was measured before a failure, too
  if (!status.ok()) return context.fail(status);
  if (context.json) context.emit(report_rows(model));
  return context.succeed();
}

#endif

}  // namespace deltawire::cli
