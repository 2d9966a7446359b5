#include "lab/bench/device/cuda/measures.h"
#include "lab/bench/device/cuda/public_arrays.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::Place;

Status measure_diff_plan(DeviceModel* model) {
  DW_ASSIGN_OR_RETURN(cuda::Context context, make_context(*model));
  std::vector<cuda::Pair> pairs;
  for (size_t i = 0; i < model->sizes.size(); ++i) pairs.push_back(public_pair(*model, i));
  DW_ASSIGN_OR_RETURN(cuda::DiffPlan plan, context.plan_diff(pairs));
  const uint64_t capacity = model->num_elements / 25;
  DW_ASSIGN_OR_RETURN(const Buffer positions, Buffer::allocate(Place::kDevice, capacity * 8));
  DW_ASSIGN_OR_RETURN(const Buffer values, Buffer::allocate(Place::kDevice, capacity * 2));
  DW_ASSIGN_OR_RETURN(const Buffer first, Buffer::allocate(Place::kDevice, (pairs.size() + 1) * 8));
  const cuda::ChangeLists out{positions.data<uint64_t>(), values.data(), capacity,
                              first.data<uint64_t>()};
  DW_ASSIGN_OR_RETURN(const double time, model->best([&] { return plan.diff(out, nullptr); }));
  uint64_t found = 0;
  DW_RETURN_IF_ERROR(cuda::copy(&found, first.data<uint64_t>() + pairs.size(), 8, nullptr));
  DW_RETURN_IF_ERROR(cuda::wait(nullptr));
  if (found != model->num_changed) return internal_error("two diffs find different changes");
  model->rows.push_back({"diff into lists in order (capturable)", time, model->read_both, ""});
  return {};
}

}  // namespace deltawire::cli
