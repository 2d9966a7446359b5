#include "replica/eager_parts.h"

#include "format/part_check.h"
#include "tensor/find_tensor.h"

namespace deltawire {
namespace {

bool same_form(const DeltaEntry& entry, DType dtype, const Shape& shape) {
  return entry.dtype == dtype && entry.shape == shape;
}

}  // namespace

Result<EagerParts::Ready> EagerParts::add(const PartFile& part) {
  Ready ready;
  DW_ASSIGN_OR_RETURN(ready.delta, open_delta_parts({part}));
  const Schema& schema = target_.schema;
  for (const Delta::Entry& item : ready.delta.entries) {
    const DeltaEntry& entry = item.entry;
    const CheckpointTensor* from = find_tensor(held_.tensors, entry.tensor);
    const Schema::Tensor* to = find_tensor(schema.tensors, entry.tensor);
    const bool alone = entry.box.whole() && entry.old_digest && from != nullptr && to != nullptr &&
                       same_form(entry, from->view.dtype, from->view.shape) &&
                       same_form(entry, to->dtype, to->shape);
    if (!alone) continue;
    const size_t index = size_t(to - schema.tensors.data());
    // A second entry of the same tensor is found when all parts are opened together.
    if (done_.insert(index).second) ready.steps.push_back({index, from, {&item}});
  }
  return ready;
}

void EagerParts::erase_done(std::vector<TensorSteps>* steps) const {
  std::erase_if(*steps, [&](const TensorSteps& one) { return done_.contains(one.index); });
}

}  // namespace deltawire
