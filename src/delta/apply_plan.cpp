#include "delta/apply_plan.h"

#include <map>

#include "base/waves.h"
#include "codec/codec.h"
#include "digest/parallel.h"
#include "digest/sums.h"
#include "tensor/box.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

Status lay_out(const Schema& schema, const Metadata& metadata, PlannedFile* file) {
  std::vector<TensorSpec> specs;
  for (const PlannedTensor& tensor : file->tensors) {
    specs.push_back(schema.tensors[tensor.index]);
  }
  DW_ASSIGN_OR_RETURN(file->header, serialise_safetensors_header(specs, metadata));
  file->size = file->header.size();
  for (PlannedTensor& tensor : file->tensors) {
    const TensorSpec& spec = schema.tensors[tensor.index];
    DW_ASSIGN_OR_RETURN(tensor.size, tensor_size_bytes(spec.dtype, spec.shape));
    tensor.offset = file->size;
    file->size += tensor.size;
  }
  return {};
}

}  // namespace

Result<PlannedLayout> plan_layout(const Checkpoint& source, const Schema& schema, bool keep_empty) {
  PlannedLayout layout;
  std::vector<bool> placed(schema.tensors.size());
  for (const CheckpointFile& file : source.files()) {
    PlannedFile planned{&file, false, file.header, file.bytes.size(), {}};
    for (const size_t t : file.tensors) {
      const CheckpointTensor& tensor = source.tensors()[t];
      const TensorSpec* found = find_tensor(schema.tensors, tensor.view.name);
      if (found == nullptr) {
        planned.relaid = true;
        continue;
      }
      const size_t index = size_t(found - schema.tensors.data());
      placed[index] = true;
      planned.tensors.push_back({index, tensor.offset, tensor.view.bytes.size()});
      if (!same_form(*found, tensor.view)) planned.relaid = true;
    }
    layout.files.push_back(std::move(planned));
  }
  for (size_t i = 0; i < placed.size(); ++i) {
    if (placed[i]) continue;
    if (layout.files.empty()) return corruption(source.path().string() + ": has no files");
    layout.files.back().tensors.push_back({i, 0, 0});
    layout.files.back().relaid = true;
  }
  std::vector<PlannedFile> kept;
  for (PlannedFile& file : layout.files) {
    layout.relaid |= file.relaid;
    if (!keep_empty && file.relaid && file.tensors.empty() && layout.files.size() > 1) {
      layout.gone.push_back(file.from->name);
      continue;
    }
    if (file.relaid) DW_RETURN_IF_ERROR(lay_out(schema, file.from->metadata, &file));
    kept.push_back(std::move(file));
  }
  layout.files = std::move(kept);
  return layout;
}

Result<ApplyPlan> plan_apply(const Checkpoint& base, const Delta& delta,
                             const std::vector<TensorState>& before) {
  std::map<std::string, std::vector<const Delta::Entry*>> entries;
  for (const Delta::Entry& item : delta.entries) entries[item.entry.tensor].push_back(&item);
  std::map<std::string, TensorSpec> specs;
  for (const CheckpointTensor& tensor : base.tensors()) specs[tensor.view.name] = tensor.view;
  for (const std::string& name : delta.info.removed) specs.erase(name);
  for (const auto& [name, items] : entries) {
    specs[name] = {name, items[0]->entry.dtype, items[0]->entry.shape};
  }
  Schema schema;
  for (auto& [name, spec] : specs) schema.tensors.push_back(std::move(spec));
  DW_ASSIGN_OR_RETURN(PlannedLayout layout, plan_layout(base, schema, true));
  ApplyPlan plan{{}, layout.relaid};
  for (PlannedFile& file : layout.files) {
    OutFile out{file.from, std::move(file.header), {}, file.size};
    for (const PlannedTensor& placed : file.tensors) {
      OutTensor target{schema.tensors[placed.index], nullptr, {}, placed.offset, placed.size, {}};
      if (const auto found = entries.find(target.spec.name); found != entries.end()) {
        target.entries = std::move(found->second);
      }
      if (!target.brought()) {
        target.from = base.find(target.spec.name);
        target.state = before[size_t(target.from - base.tensors().data())].digest;
      }
      out.tensors.push_back(std::move(target));
    }
    plan.files.push_back(std::move(out));
  }
  return plan;
}

Status apply_entry(const DeltaEntry& entry, Bytes payload, MutableBytes tensor, Hasher* hasher,
                   ThreadPool* pool) {
  const BoxRows rows(entry.box, entry.dtype, entry.shape);
  const bool contiguous = entry.box.whole() || rows.count() == 1;
  std::vector<uint8_t> copy;
  MutableBytes contents = tensor;
  if (contiguous) {
    contents =
        tensor.subspan(rows.count() == 0 ? 0 : rows.position(0), rows.count() * rows.row_bytes());
  } else {
    copy.resize(entry.box_bytes());
    copy_box_out(entry.box, entry.dtype, entry.shape, tensor, copy);
    contents = copy;
  }
  const Codec& codec = *find_codec(entry.codec);
  DW_RETURN_IF_ERROR(hasher == nullptr
                         ? codec.apply(entry.layout(), payload, contents, pool)
                         : codec.apply_hashed(entry.layout(), payload, contents, hasher, pool));
  if (!contiguous) copy_box_in(entry.box, entry.dtype, entry.shape, copy, tensor);
  return {};
}

Status apply_checked(const Delta::Entry& item, MutableBytes tensor, ThreadPool* pool) {
  Hasher hasher(DigestKind::kSum128);
  DW_RETURN_IF_ERROR(apply_entry(item.entry, item.payload, tensor, &hasher, pool).at(item.place));
  return check_new_digest(item, hasher.finish());
}

Status check_new_digest(const Delta::Entry& item, const Digest& got) {
  const Digest& expected = item.entry.new_digest;
  if (got == expected) return {};
  return corruption(item.place + ": " + std::string(digest_name(got.kind)) +
                    " after the patch: expected " + expected.hex() + ", got " + got.hex());
}

namespace {

// Compares the entry's old digest with the base's tensor, or with the box in it.
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
  DW_RETURN_IF_ERROR(Waves(std::move(sizes), Waves::Inside::kOneThread, pool, progress).run(hash));

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

BothDigests digests_around(Sums sums, unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool) {
  const Digest before = *sums.finish(bytes.size());
  replace_elements(width, bytes, changes.positions, changes.values, pool, &sums);
  return {before, *sums.finish(bytes.size())};
}

}  // namespace deltawire
