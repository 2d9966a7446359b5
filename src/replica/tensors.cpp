#include "replica/tensors.h"

#include <algorithm>
#include <map>

#include "delta/apply_plan.h"
#include "digest/parallel.h"
#include "format/tensor_digest.h"
#include "tensor/box.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr const char* kNotTheTarget = ": the patched tensor does not match the manifest: ";

const std::vector<BoxDigest>* boxes_of(const Manifest& manifest, const std::string& tensor) {
  const auto found = manifest.boxes.find(tensor);
  return found == manifest.boxes.end() ? nullptr : &found->second;
}

// A tensor after the hops processed so far.
struct Stepped {
  DType dtype = DType::kU8;
  Shape shape;
  const CheckpointTensor* from = nullptr;
  std::vector<const Delta::Entry*> entries;
};
using SteppedTensors = std::map<std::string, Stepped, std::less<>>;

Status add_entry(const HeldTensors& source, const Delta::Entry& item, SteppedTensors* tensors) {
  const DeltaEntry& entry = item.entry;
  if (!entry.old_digest) {
    (*tensors)[entry.tensor] = {entry.dtype, entry.shape, nullptr, {&item}};
    return {};
  }
  const auto found = tensors->find(entry.tensor);
  if (found == tensors->end()) {
    return base_mismatch(source.place + ": lacks the tensor that " + item.place + " patches");
  }
  Stepped& stepped = found->second;
  if (stepped.dtype != entry.dtype || stepped.shape != entry.shape) {
    return base_mismatch(source.place + ": " + item.place + " patches " +
                         form_of(entry.dtype, entry.shape) + ", but the tensor is " +
                         form_of(stepped.dtype, stepped.shape));
  }
  stepped.entries.push_back(&item);
  return {};
}

Digest digest_of(DType dtype, const Shape& shape, Bytes tensor, const Box& box, ThreadPool* pool) {
  return box.whole() ? sum128_of(tensor, pool) : box_digest(dtype, shape, tensor, box);
}

// Checks the old digests of entries whose bytes no earlier entry has touched. Adds the checked
// boxes to `proven`.
Status check_start(const TensorSteps& steps, const std::string& place, Bytes data, ThreadPool* pool,
                   std::vector<const Box*>* proven) {
  if (steps.from == nullptr) return {};
  std::vector<const Box*> touched;
  for (const Delta::Entry* item : steps.entries) {
    const DeltaEntry& entry = item->entry;
    const bool fresh = std::none_of(touched.begin(), touched.end(), [&](const Box* box) {
      return *box == entry.box || overlap(*box, entry.box);
    });
    if (!fresh) continue;
    touched.push_back(&entry.box);
    const Digest got = digest_of(entry.dtype, entry.shape, data, entry.box, pool);
    if (got != *entry.old_digest) return not_the_base(place, *item, got);
    proven->push_back(&entry.box);
  }
  return {};
}

Status apply_entries(const TensorSteps& steps, MutableBytes data, ThreadPool* pool) {
  for (const Delta::Entry* item : steps.entries) {
    DW_RETURN_IF_ERROR(
        apply_entry(item->entry, item->payload, data, nullptr, pool).at(item->place));
  }
  return {};
}

// A box has the wrong result. The steps are at fault if their base was proven.
Status wrong_result(const TensorSteps& steps, const std::vector<const Box*>& proven, const Box& box,
                    const std::string& place, const std::string& difference) {
  const bool known = steps.from == nullptr ||
                     std::any_of(proven.begin(), proven.end(),
                                 [&](const Box* one) { return one->whole() || *one == box; });
  if (known) return corruption(steps.entries.back()->place + kNotTheTarget + difference);
  return base_mismatch(place + ": does not match the manifest: " + difference);
}

Status check_result(const TensorSteps& steps, const Target& target,
                    const std::vector<const Box*>& proven, const std::string& place, Bytes data,
                    ThreadPool* pool) {
  const TensorSpec& spec = target.schema.tensors[steps.index];
  const std::vector<BoxDigest>* boxes = boxes_of(target.manifest, spec.name);
  const std::vector<BoxDigest> whole = {{Box{}, target.manifest.digests[steps.index]}};
  for (const BoxDigest& box : boxes == nullptr ? whole : *boxes) {
    const Digest got = digest_of(spec.dtype, spec.shape, data, box.box, pool);
    if (got != box.digest) {
      return wrong_result(steps, proven, box.box, place, digest_difference(box.digest, got));
    }
  }
  return {};
}

}  // namespace

std::string digest_difference(const Digest& expected, const Digest& got) {
  return std::string(digest_name(got.kind)) + ": expected " + expected.hex() + ", got " + got.hex();
}

Status not_the_base(const std::string& place, const Delta::Entry& item, const Digest& got) {
  return base_mismatch(place + ": not what " + item.place +
                       " patches: " + digest_difference(*item.entry.old_digest, got));
}

Status not_the_target(const Delta::Entry& item, const Digest& expected, const Digest& got) {
  return corruption(item.place + kNotTheTarget + digest_difference(expected, got));
}

Status check_target(const Target& target) {
  const std::string place = "manifest of version " + std::to_string(target.manifest.version);
  Result<std::vector<TensorState>> states = states_of(target.schema, target.manifest);
  if (!states.ok()) return std::move(states).status().at(place);
  size_t boxed = 0;
  for (size_t i = 0; i < target.schema.tensors.size(); ++i) {
    const TensorSpec& tensor = target.schema.tensors[i];
    const std::vector<BoxDigest>* boxes = boxes_of(target.manifest, tensor.name);
    if (boxes == nullptr) continue;
    ++boxed;
    const std::string where = place + ", tensor " + quote(tensor.name);
    std::vector<const Box*> cover;
    for (const BoxDigest& one : *boxes) cover.push_back(&one.box);
    DW_RETURN_IF_ERROR(check_cover(tensor.dtype, tensor.shape, cover).at(where));
    DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(tensor.dtype, tensor.shape));
    const Result<Digest> got = boxes_digest(*boxes, size);
    if (!got.ok()) return corruption(where + ": its boxes: " + got.status().message());
    if (*got != target.manifest.digests[i]) {
      return corruption(
          where + ": digest of its boxes: " + digest_difference(target.manifest.digests[i], *got));
    }
  }
  if (boxed != target.manifest.boxes.size()) {
    return corruption(place + ": has boxes of a tensor that the schema does not have");
  }
  const Digest state = state_digest(std::move(*states));
  if (state == target.manifest.state) return {};
  return corruption(place + ": state digest: " + digest_difference(target.manifest.state, state));
}

Result<std::vector<TensorSteps>> collect_steps(const HeldTensors& source,
                                               std::span<const Delta> hops, const Schema& schema) {
  SteppedTensors tensors;
  for (const CheckpointTensor& tensor : source.tensors) {
    tensors[tensor.view.name] = {tensor.view.dtype, tensor.view.shape, &tensor, {}};
  }
  for (const Delta& hop : hops) {
    for (const std::string& name : hop.info.removed) {
      if (tensors.erase(name) == 0) {
        return base_mismatch(source.place + ": there is no tensor " + quote(name) + " to remove");
      }
    }
    for (const Delta::Entry& item : hop.entries)
      DW_RETURN_IF_ERROR(add_entry(source, item, &tensors));
  }
  std::vector<TensorSteps> steps;
  for (size_t i = 0; i < schema.tensors.size(); ++i) {
    const TensorSpec& tensor = schema.tensors[i];
    const auto found = tensors.find(tensor.name);
    if (found == tensors.end()) {
      return base_mismatch(source.place + ": there is no tensor " + quote(tensor.name));
    }
    Stepped& stepped = found->second;
    if (stepped.dtype != tensor.dtype || stepped.shape != tensor.shape) {
      return base_mismatch(source.place + ": tensor " + quote(tensor.name) + ": expected " +
                           form_of(tensor.dtype, tensor.shape) + ", got " +
                           form_of(stepped.dtype, stepped.shape));
    }
    steps.push_back({i, stepped.from, std::move(stepped.entries)});
    tensors.erase(found);
  }
  if (!tensors.empty()) {
    return base_mismatch(source.place + ": tensor " + quote(tensors.begin()->first) +
                         " is not one of the version's");
  }
  return steps;
}

Status check_untouched(const TensorSteps& steps, const Target& target, const std::string& place,
                       Bytes data, ThreadPool* pool) {
  return check_result(steps, target, {}, place, data, pool);
}

Status advance_tensor(const TensorSteps& steps, const Target& target, const std::string& place,
                      MutableBytes data, ThreadPool* pool) {
  std::vector<const Box*> proven;
  DW_RETURN_IF_ERROR(check_start(steps, place, data, pool, &proven));
  DW_RETURN_IF_ERROR(apply_entries(steps, data, pool));
  return check_result(steps, target, proven, place, data, pool);
}

}  // namespace deltawire
