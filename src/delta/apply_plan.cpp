#include "delta/apply_plan.h"

#include <map>
#include <set>

#include "base/waves.h"
#include "digest/parallel.h"
#include "digest/sums.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

using EntriesByTensor = std::map<std::string, std::vector<const Delta::Entry*>, std::less<>>;

Status lay_out(OutFile* file) {
  std::vector<TensorSpec> specs;
  for (const OutTensor& tensor : file->tensors) specs.push_back(tensor.spec);
  DW_ASSIGN_OR_RETURN(file->header, serialise_safetensors_header(specs, file->from->metadata));
  file->size = file->header.size();
  for (OutTensor& tensor : file->tensors) {
    DW_ASSIGN_OR_RETURN(tensor.size, tensor_size_bytes(tensor.spec.dtype, tensor.spec.shape));
    tensor.offset = file->size;
    file->size += tensor.size;
  }
  return {};
}

void keep_layout(OutFile* file) {
  file->size = file->from->bytes.size();
  file->header.assign(reinterpret_cast<const char*>(file->from->bytes.data()),
                      file->from->header_bytes);
}

}  // namespace

Result<ApplyPlan> plan_apply(const Checkpoint& base, const Delta& delta,
                             const std::vector<TensorState>& before) {
  EntriesByTensor entries;
  for (const Delta::Entry& item : delta.entries) entries[item.entry.tensor].push_back(&item);
  const std::set<std::string, std::less<>> removed(delta.info.removed.begin(),
                                                   delta.info.removed.end());
  ApplyPlan plan;
  for (const CheckpointFile& file : base.files()) {
    OutFile out;
    out.from = &file;
    bool relaid = false;
    for (const size_t index : file.tensors) {
      const CheckpointTensor& tensor = base.tensors()[index];
      const TensorView& view = tensor.view;
      if (removed.contains(view.name)) {
        relaid = true;
        continue;
      }
      OutTensor target{{view.name, view.dtype, view.shape},
                       &tensor,
                       {},
                       tensor.offset,
                       view.bytes.size(),
                       before[index].digest};
      if (const auto found = entries.find(view.name); found != entries.end()) {
        target.entries = std::move(found->second);
        entries.erase(found);
        if (target.brought()) {
          target.from = nullptr;
          target.spec.dtype = target.entries[0]->entry.dtype;
          target.spec.shape = target.entries[0]->entry.shape;
          relaid = true;
        }
      }
      out.tensors.push_back(std::move(target));
    }
    const bool last = &file == &base.files().back();
    if (last) {  // tensors that are new go to the end of the last file
      for (auto& [name, items] : entries) {
        const DeltaEntry& entry = items[0]->entry;
        out.tensors.push_back(
            {{name, entry.dtype, entry.shape}, nullptr, std::move(items), 0, 0, {}});
        relaid = true;
      }
    }
    if (relaid) {
      DW_RETURN_IF_ERROR(lay_out(&out));
      plan.relaid = true;
    } else {
      keep_layout(&out);
    }
    plan.files.push_back(std::move(out));
  }
  return plan;
}

namespace {

// The entry's old digest against the base's tensor; boxes are cut out first.
Status check_entry(const CheckpointTensor* tensor, const Delta::Entry& item,
                   const TensorState* state) {
  const DeltaEntry& entry = item.entry;
  if (tensor == nullptr) return base_mismatch(item.place + ": the base has no such tensor");
  if (!same_form(tensor->view, entry)) {
    return base_mismatch(item.place + ": expected " + form_of(entry) + ", the base has " +
                         form_of(tensor->view));
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
                         ": not the base of the delta: the tensors that it patches match, but "
                         "another one differs, is missing or is new; state digest expected " +
                         delta.info.base.hex() + ", got " + got.hex());
  }
  return states;
}

BothDigests digests_around(unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool) {
  return digests_around(sums_of(bytes, 0, pool), width, bytes, changes, pool);
}

BothDigests digests_around(Sums sums, unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool) {
  const Digest before = *sums.finish(bytes.size());
  replace_elements(width, bytes, changes.positions, changes.values, pool, &sums);
  return {before, *sums.finish(bytes.size())};
}

}  // namespace deltawire
