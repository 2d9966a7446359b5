#include "delta/diff_states.h"

#include "delta/encode_items.h"
#include "format/state_digest.h"
#include "tensor/find_tensor.h"

namespace deltawire {
namespace {

bool same_form(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

std::vector<EncodeItem> pair_up(std::span<const TensorView> old_state,
                                std::span<const TensorView> new_state) {
  std::vector<EncodeItem> items;
  for (const TensorView& tensor : new_state) {
    const TensorView* before = find_tensor(old_state, tensor.name);
    EncodeItem item;
    item.change = {tensor.name, tensor.dtype, tensor.shape, {}, {}, tensor.bytes};
    item.comparable = before != nullptr && same_form(*before, tensor);
    if (item.comparable) item.change.old_bytes = before->bytes;
    items.push_back(std::move(item));
  }
  return items;
}

// Tensors of the old state that have no counterpart still count in the digest of the base.
void add_unpaired(std::span<const TensorView> old_state, std::span<const TensorView> new_state,
                  std::vector<TensorState>* base, std::vector<std::string>* removed) {
  for (const TensorView& tensor : old_state) {
    const TensorView* after = find_tensor(new_state, tensor.name);
    if (after != nullptr && same_form(*after, tensor)) continue;
    base->push_back(
        {tensor.name, tensor.dtype, tensor.shape, digest_of(DigestKind::kSum128, tensor.bytes)});
    if (after == nullptr) removed->push_back(tensor.name);
  }
}

}  // namespace

void count_entry(const DeltaEntry& entry, bool comparable, bool changed, DiffReport* report) {
  ++report->num_tensors;
  if (comparable) {
    report->num_elements += entry.num_elements();
    report->num_changed += entry.num_changed;
    report->num_changed_tensors += changed;
  } else {
    ++report->num_added;
    report->whole_bytes += entry.box_bytes();
  }
  report->weights_bytes += entry.box_bytes();
}

Result<DeltaSummary> diff_states(
    std::span<const TensorView> old_state, std::span<const TensorView> new_state,
    const DiffOptions& options, const Progress& progress, ThreadPool* pool,
    const std::function<Status(DeltaEntry entry, std::vector<uint8_t> payload)>& add) {
  const std::vector<EncodeItem> items = pair_up(old_state, new_state);
  DeltaSummary diff;
  std::vector<TensorState> base, target;
  const auto take = [&](size_t i, EncodedItem outcome) -> Status {
    const bool comparable = items[i].comparable;
    const DeltaEntry& entry = outcome.entry;
    count_entry(entry, comparable, outcome.changed, &diff.report);
    if (comparable) base.push_back({entry.tensor, entry.dtype, entry.shape, outcome.old_digest});
    target.push_back({entry.tensor, entry.dtype, entry.shape, entry.new_digest});
    if (!outcome.changed) return {};
    return add(std::move(outcome.entry), std::move(outcome.payload));
  };
  DW_RETURN_IF_ERROR(
      encode_items(items, {options.codec, Hashing::kAll, UINT64_MAX, progress}, pool, take));
  add_unpaired(old_state, new_state, &base, &diff.info.removed);
  diff.info.base = diff.report.base = state_digest(std::move(base));
  diff.info.target = diff.report.target = state_digest(std::move(target));
  diff.report.num_removed = diff.info.removed.size();
  return diff;
}

}  // namespace deltawire
