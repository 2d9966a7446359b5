#include "delta/apply_plan.h"

#include <map>
#include <set>

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

}  // namespace deltawire
