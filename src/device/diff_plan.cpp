#include "device/arrays.h"
#include "device/context.h"
#include "kernels/cuda/ordered_diff.h"

namespace deltawire::cuda {

struct DiffPlan::Impl {
  int device = 0;
  PairBatch batch;
  Buffer kinds, state;
};

DiffPlan::DiffPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DiffPlan::~DiffPlan() = default;
DiffPlan::DiffPlan(DiffPlan&&) noexcept = default;
DiffPlan& DiffPlan::operator=(DiffPlan&&) noexcept = default;

Result<DiffPlan> Context::plan_diff(std::span<const Pair> pairs) {
  const UseDevice use(impl_->device);
  std::vector<PairArray> arrays;
  std::vector<NewKind> kinds;
  unsigned width = 1;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::string place = "pair " + std::to_string(i);
    Result<DevicePair> pair = device_pair(pairs[i]);
    if (!pair.ok()) return std::move(pair).status().at(place);
    if (i == 0) width = pair->layout.width;
    if (pair->layout.width != width) {
      return invalid_argument(place + ": elements of " + std::to_string(pair->layout.width) +
                              " bytes, and of " + std::to_string(width) + " in the first");
    }
    arrays.push_back({pair->old_data, pair->new_data, pair->num_elements, 0});
    kinds.push_back(pair->kind);
  }
  DW_ASSIGN_OR_RETURN(const Stream stream, impl_->workspace.stream(0));
  auto plan = std::make_unique<DiffPlan::Impl>();
  plan->device = impl_->device;
  DW_ASSIGN_OR_RETURN(plan->batch, PairBatch::make(std::move(arrays), width, stream));
  const size_t kind_bytes = kinds.size() * sizeof(NewKind);
  DW_ASSIGN_OR_RETURN(plan->kinds, Buffer::allocate(Place::kDevice, kind_bytes));
  DW_ASSIGN_OR_RETURN(plan->state,
                      Buffer::allocate(Place::kDevice, ordered_diff_state_bytes(plan->batch)));
  DW_RETURN_IF_ERROR(copy(plan->kinds.data(), kinds.data(), kind_bytes, stream));
  DW_RETURN_IF_ERROR(wait(stream));
  return DiffPlan(std::move(plan));
}

Status DiffPlan::diff(const ChangeLists& out, Stream stream) {
  const UseDevice use(impl_->device);
  if (out.first == nullptr ||
      (out.capacity != 0 && (out.positions == nullptr || out.values == nullptr))) {
    return invalid_argument("lists of changes at null");
  }
  return ordered_diff(impl_->batch, impl_->kinds.data<NewKind>(), impl_->state.data(),
                      {out.positions, out.values, out.capacity, out.first}, stream);
}

}  // namespace deltawire::cuda
