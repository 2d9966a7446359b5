#include "replica/layout.h"

#include "tensor/form.h"
#include "tensor/safetensors.h"

namespace deltawire {
namespace {

Status lay_out(const Schema& schema, const Metadata& metadata, PlannedFile* file) {
  std::vector<TensorSpec> specs;
  for (const PlannedTensor& tensor : file->tensors) {
    const Schema::Tensor& spec = schema.tensors[tensor.index];
    specs.push_back({spec.name, spec.dtype, spec.shape});
  }
  DW_ASSIGN_OR_RETURN(file->header, serialise_safetensors_header(specs, metadata));
  file->size = file->header.size();
  for (PlannedTensor& tensor : file->tensors) {
    const Schema::Tensor& spec = schema.tensors[tensor.index];
    DW_ASSIGN_OR_RETURN(tensor.size, tensor_size_bytes(spec.dtype, spec.shape));
    tensor.offset = file->size;
    file->size += tensor.size;
  }
  return {};
}

}  // namespace

Result<PlannedLayout> plan_layout(const Checkpoint& source, const Schema& schema) {
  PlannedLayout layout;
  std::vector<bool> placed(schema.tensors.size());
  std::vector<const CheckpointFile*> origins;
  for (const CheckpointFile& file : source.files()) {
    PlannedFile planned;
    planned.name = file.name;
    planned.size = file.bytes.size();
    for (const size_t t : file.tensors) {
      const CheckpointTensor& tensor = source.tensors()[t];
      const Schema::Tensor* found = find_tensor(schema.tensors, tensor.view.name);
      if (found == nullptr) {
        planned.relaid = true;
        continue;
      }
      const size_t index = size_t(found - schema.tensors.data());
      placed[index] = true;
      planned.tensors.push_back({index, tensor.offset, tensor.view.bytes.size()});
      if (found->dtype != tensor.view.dtype || found->shape != tensor.view.shape) {
        planned.relaid = true;
      }
    }
    layout.files.push_back(std::move(planned));
    origins.push_back(&file);
  }
  for (size_t i = 0; i < placed.size(); ++i) {
    if (placed[i]) continue;
    if (layout.files.empty()) return corruption(source.path().string() + ": has no files");
    layout.files.back().tensors.push_back({i, 0, 0});
    layout.files.back().relaid = true;
  }
  std::vector<PlannedFile> kept;
  for (size_t f = 0; f < layout.files.size(); ++f) {
    PlannedFile& file = layout.files[f];
    layout.relaid |= file.relaid;
    if (file.relaid && file.tensors.empty() && layout.files.size() > 1) {
      layout.gone.push_back(file.name);
      continue;
    }
    if (file.relaid) DW_RETURN_IF_ERROR(lay_out(schema, origins[f]->metadata, &file));
    kept.push_back(std::move(file));
  }
  layout.files = std::move(kept);
  return layout;
}

}  // namespace deltawire
