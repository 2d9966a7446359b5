#include "sync/replica/eager_build.h"

#include <algorithm>

#include "format/part_check.h"
#include "sync/replica/build.h"

namespace deltawire {
namespace {

bool same_form(const DeltaEntry& entry, DType dtype, const Shape& shape) {
  return entry.dtype == dtype && entry.shape == shape;
}

}  // namespace

Status EagerBuild::add(const PartFile& part, const Progress& progress) {
  DW_ASSIGN_OR_RETURN(const Delta delta, open_delta_parts({part}));
  const Schema& schema = target_.schema;
  std::vector<TensorSteps> steps;
  std::vector<const Delta::Entry*> taken;
  for (const Delta::Entry& item : delta.entries) {
    const DeltaEntry& entry = item.entry;
    const CheckpointTensor* from = held_.find(entry.tensor);
    const Schema::Tensor* to = find_tensor(schema, entry.tensor);
    const bool alone = entry.box.whole() && entry.old_digest && from != nullptr && to != nullptr &&
                       same_form(entry, from->view.dtype, from->view.shape) &&
                       same_form(entry, to->dtype, to->shape);
    if (!alone || done_.contains(entry.tensor)) continue;  // a second one is found at the end
    steps.push_back({size_t(to - schema.tensors.data()), from, {&item}});
    taken.push_back(&item);
  }
  const BuildContext build{target_, held_, steps, false, pool_, progress};
  DW_RETURN_IF_ERROR(build_redo(build, scratch_, redo_));
  done_bytes_ += build_bytes(build);
  for (const Delta::Entry* item : taken) done_.insert(item->entry.tensor);
  return {};
}

}  // namespace deltawire
