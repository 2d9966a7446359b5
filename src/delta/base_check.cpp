#include "delta/base_check.h"

#include "base/waves.h"
#include "tensor/find_tensor.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// The entry's old digest against the base's tensor; boxes are cut out first.
Status check_entry(const CheckpointTensor* tensor, const Delta::Entry& item,
                   const TensorState* state) {
  const DeltaEntry& entry = item.entry;
  if (tensor == nullptr) return base_mismatch(item.place + ": the base has no such tensor");
  if (tensor->view.dtype != entry.dtype || tensor->view.shape != entry.shape) {
    return base_mismatch(item.place + ": expected " + std::string(dtype_name(entry.dtype)) + " " +
                         shape_to_string(entry.shape) + ", the base has " +
                         std::string(dtype_name(tensor->view.dtype)) + " " +
                         shape_to_string(tensor->view.shape));
  }
  Digest got;
  if (entry.box.whole()) {
    got = state->digest;
  } else {
    std::vector<uint8_t> contents(entry.box_bytes());
    copy_box_out(entry.box, entry.dtype, entry.shape, tensor->view.bytes, contents);
    got = digest_of(DigestKind::kSum128, contents);
  }
  if (got == *entry.old_digest) return {};
  return base_mismatch(item.place + ": " + std::string(digest_name(got.kind)) +
                       " of the base: expected " + entry.old_digest->hex() + ", got " + got.hex());
}

}  // namespace

Result<std::vector<TensorState>> check_base(const std::string& place,
                                            std::span<const CheckpointTensor> tensors,
                                            const Delta& delta, ThreadPool* pool,
                                            const Progress& progress) {
  std::vector<TensorState> states(tensors.size());
  std::vector<uint64_t> sizes;
  for (const CheckpointTensor& tensor : tensors) sizes.push_back(tensor.view.bytes.size());
  const auto hash = [&](size_t i, ThreadPool*) -> Status {
    const TensorView& view = tensors[i].view;
    states[i] = {view.name, view.dtype, view.shape, digest_of(DigestKind::kSum128, view.bytes)};
    return {};
  };
  DW_RETURN_IF_ERROR(
      Waves(std::move(sizes), Waves::Inside::kOneThread, pool, progress).run(hash, [](size_t) {
        return Status();
      }));

  for (const Delta::Entry& item : delta.entries) {
    if (!item.entry.old_digest) continue;
    const CheckpointTensor* tensor = find_tensor(tensors, item.entry.tensor);
    const TensorState* state =
        tensor == nullptr ? nullptr : &states[size_t(tensor - tensors.data())];
    DW_RETURN_IF_ERROR(check_entry(tensor, item, state));
  }
  const Digest got = state_digest(states);
  if (got != delta.info.base) {
    return base_mismatch(place +
                         ": not the state the delta was made from, though every tensor it patches "
                         "is: a tensor that it leaves alone differs, is missing or is new; state "
                         "digest expected " +
                         delta.info.base.hex() + ", got " + got.hex());
  }
  return states;
}

}  // namespace deltawire
