#include "format/part_check.h"

#include "base/bytes.h"
#include "tensor/form.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

Status wrong(std::string_view tensor, std::string_view what, const std::string& expected,
             const std::string& got) {
  return corruption("tensor " + quote(tensor) + ": " + std::string(what) + ": expected " +
                    expected + ", got " + got);
}

Status check_spec(const TensorSpec& expected, DType dtype, const Shape& shape) {
  if (dtype != expected.dtype) {
    return wrong(expected.name, "dtype", std::string(dtype_name(expected.dtype)),
                 std::string(dtype_name(dtype)));
  }
  if (shape != expected.shape) {
    return wrong(expected.name, "shape", shape_to_string(expected.shape), shape_to_string(shape));
  }
  return {};
}

size_t index_of(const Schema& schema, const TensorSpec& tensor) {
  return size_t(&tensor - schema.tensors.data());
}

// The digest that a manifest has for a tensor or a box of it; null when it has none for that box.
const Digest* digest_of_box(const DescribedState& state, const TensorSpec& tensor, const Box& box) {
  if (box.whole() && boxes_hashed(*state.manifest, tensor.name) == nullptr) {
    return &state.manifest->digests[index_of(*state.schema, tensor)];
  }
  const auto boxes = state.manifest->boxes.find(tensor.name);
  if (boxes == state.manifest->boxes.end()) return nullptr;
  for (const BoxDigest& known : boxes->second) {
    if (known.box == box) return &known.digest;
  }
  return nullptr;
}

// The boxes that the digest depends on.
std::vector<Box> boxes_of(const DescribedState& state, const std::string& tensor) {
  std::vector<Box> boxes;
  const std::vector<BoxDigest>* const found = boxes_hashed(*state.manifest, tensor);
  if (found == nullptr) return boxes;
  for (const BoxDigest& box : *found) boxes.push_back(box.box);
  return boxes;
}

// Whether a tensor may be equal in two versions, judging by digests. Digests over different boxes
// are not comparable.
bool may_be_same(const DescribedState& a, const TensorSpec& in_a, const DescribedState& b,
                 const TensorSpec& in_b) {
  if (!same_form(in_a, in_b)) return false;
  if (boxes_of(a, in_a.name) != boxes_of(b, in_b.name)) return true;
  return a.manifest->digests[index_of(*a.schema, in_a)] ==
         b.manifest->digests[index_of(*b.schema, in_b)];
}

}  // namespace

Status check_state(const Schema& schema, const Manifest& manifest) {
  DW_ASSIGN_OR_RETURN(std::vector<TensorState> states, states_of(schema, manifest));
  for (const auto& [name, boxes] : manifest.boxes) {
    const TensorSpec* tensor = find_tensor(schema.tensors, name);
    if (tensor == nullptr) return corruption("boxes: there is no tensor " + quote(name));
    for (const BoxDigest& box : boxes) {
      Status status = check_box(box.box, tensor->dtype, tensor->shape);
      if (!status.ok()) return corruption("tensor " + quote(name) + ": " + status.message());
    }
    DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(tensor->dtype, tensor->shape));
    const Result<Digest> expected = boxes_digest(boxes, size);
    if (!expected.ok()) {
      return corruption("tensor " + quote(name) + ": its boxes: " + expected.status().message());
    }
    const Digest& got = manifest.digests[index_of(schema, *tensor)];
    if (got != *expected) return wrong(name, "digest of its boxes", expected->hex(), got.hex());
  }
  const Digest expected = state_digest(std::move(states));
  if (manifest.state != expected) {
    return corruption("state digest: expected " + expected.hex() + ", got " + manifest.state.hex());
  }
  return {};
}

Status DeltaPartsCheck::check_entry(const DeltaEntry& entry) const {
  const TensorSpec* tensor = find_tensor(target_.schema->tensors, entry.tensor);
  if (tensor == nullptr) {
    return corruption("tensor " + quote(entry.tensor) + ": the version has no such tensor");
  }
  DW_RETURN_IF_ERROR(check_spec(*tensor, entry.dtype, entry.shape));
  const Digest* after = digest_of_box(target_, *tensor, entry.box);
  if (after != nullptr && *after != entry.new_digest) {
    return wrong(entry.tensor, "digest", after->hex(), entry.new_digest.hex());
  }
  if (base_.schema == nullptr || !entry.old_digest) return {};
  const TensorSpec* old = find_tensor(base_.schema->tensors, entry.tensor);
  if (old == nullptr) return corruption("tensor " + quote(entry.tensor) + ": the base has none");
  DW_RETURN_IF_ERROR(check_spec(*old, entry.dtype, entry.shape));
  const Digest* before = digest_of_box(base_, *old, entry.box);
  if (before != nullptr && *before != *entry.old_digest) {
    return wrong(entry.tensor, "digest in the base", before->hex(), entry.old_digest->hex());
  }
  return {};
}

Status DeltaPartsCheck::add(const DeltaPart& part) {
  if (base_.schema != nullptr && part.info.base != base_.manifest->state) {
    return corruption("base: expected " + base_.manifest->state.hex() + ", got " +
                      part.info.base.hex());
  }
  if (part.info.has_target() && part.info.target != target_.manifest->state) {
    return corruption("target: expected " + target_.manifest->state.hex() + ", got " +
                      part.info.target.hex());
  }
  for (const PayloadView& view : part.entries) {
    DW_RETURN_IF_ERROR(check_entry(view.entry));
    covered_.insert(view.entry.tensor);
  }
  removed_.insert(part.info.removed.begin(), part.info.removed.end());
  return {};
}

Status DeltaPartsCheck::finish() const {
  if (base_.schema == nullptr) return {};
  for (const TensorSpec& tensor : target_.schema->tensors) {
    const TensorSpec* old = find_tensor(base_.schema->tensors, tensor.name);
    const bool same = old != nullptr && may_be_same(base_, *old, target_, tensor);
    if (!same && !covered_.contains(tensor.name)) {
      return corruption("tensor " + quote(tensor.name) + ": changed, but no part contains it");
    }
  }
  size_t num_removed = 0;
  for (const TensorSpec& tensor : base_.schema->tensors) {
    if (find_tensor(target_.schema->tensors, tensor.name) != nullptr) continue;
    ++num_removed;
    if (!removed_.contains(tensor.name)) {
      return corruption("tensor " + quote(tensor.name) + ": was removed, but no part lists it");
    }
  }
  if (num_removed != removed_.size())
    return corruption("a part removes a tensor that the version has");
  return {};
}

Status WholeFilesCheck::add(std::string_view header, uint64_t file_bytes) {
  if (header.size() < 8 || header.size() > file_bytes) return corruption("cut short");
  DW_ASSIGN_OR_RETURN(const SafetensorsHeader parsed,
                      parse_safetensors_header(header.substr(8), file_bytes - header.size()));
  for (const TensorEntry& entry : parsed.entries) {
    const TensorSpec* tensor = find_tensor(schema_.tensors, entry.spec.name);
    if (tensor == nullptr) {
      return corruption("tensor " + quote(entry.spec.name) + ": the version has no such tensor");
    }
    DW_RETURN_IF_ERROR(check_spec(*tensor, entry.spec.dtype, entry.spec.shape));
    if (!seen_.insert(entry.spec.name).second) {
      return corruption("tensor " + quote(entry.spec.name) + ": is in two files");
    }
  }
  return {};
}

Status WholeFilesCheck::finish() const {
  for (const TensorSpec& tensor : schema_.tensors) {
    if (!seen_.contains(tensor.name)) {
      return corruption("tensor " + quote(tensor.name) + ": is in none of the files");
    }
  }
  return {};
}

}  // namespace deltawire
