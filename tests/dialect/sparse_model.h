// A model in memory that foreign versions are applied to and written from.
#pragma once

#include "dialect/dialect.h"
#include "store/memory_store.h"
#include "test_files.h"

namespace deltawire::testing {

struct ForeignModel {
  struct Tensor {
    TensorSpec spec;
    std::vector<uint8_t> bytes;
    bool operator==(const Tensor&) const = default;
  };
  std::map<std::string, Tensor> tensors;
  bool operator==(const ForeignModel&) const = default;

  // Bytes by a rule: any that are neither NaN nor equal all over.
  void add(const std::string& name, DType dtype, Shape shape, uint32_t seed = 1) {
    Tensor tensor{{name, dtype, shape}, std::vector<uint8_t>(*tensor_size_bytes(dtype, shape))};
    for (uint8_t& byte : tensor.bytes) {
      seed = seed * 1664525 + 1013904223;
      byte = uint8_t(seed >> 24) & 0x3f;
    }
    tensors[name] = std::move(tensor);
  }

  template <class Element>
  void set(const std::string& name, size_t position, Element value) {
    std::memcpy(tensors.at(name).bytes.data() + position * sizeof value, &value, sizeof value);
  }
  template <class Element>
  Element get(const std::string& name, size_t position) const {
    return load_le<Element>(tensors.at(name).bytes.data() + position * sizeof(Element));
  }
};

// What `version` makes of the model, or why it does not.
inline Status apply_to(const ForeignVersion& version, ForeignModel* model) {
  for (size_t i = 0; i < version.info().tensors.size(); ++i) {
    const auto it = model->tensors.find(version.info().tensors[i].name);
    if (it == model->tensors.end()) return not_found(version.info().tensors[i].name);
    DW_RETURN_IF_ERROR(version.apply(i, it->second.spec, it->second.bytes, nullptr));
  }
  return version.check_unchanged();
}

inline Status read_version(const Dialect& dialect, Store& store, uint64_t number,
                           ForeignModel* model) {
  DW_ASSIGN_OR_RETURN(const auto version, dialect.open(store, number));
  return apply_to(*version, model);
}

// Writes what differs between the models; `full`: all of `after`.
inline Status write_version(const Dialect& dialect, std::shared_ptr<Store> store, uint64_t number,
                            const ForeignModel& before, const ForeignModel& after,
                            const ForeignOptions& options = {}, bool full = false) {
  ForeignDraft draft{.version = number, .base = number - 1, .full = full};
  for (const auto& [name, tensor] : after.tensors) {
    const auto old = before.tensors.find(name);
    if (old == before.tensors.end() || old->second.spec != tensor.spec) draft.added.push_back(name);
    if (full || old == before.tensors.end() || old->second != tensor) {
      draft.tensors.push_back(tensor.spec);
    }
  }
  for (const auto& [name, tensor] : before.tensors) {
    if (!after.tensors.contains(name)) draft.removed.push_back(name);
  }
  DW_ASSIGN_OR_RETURN(const auto writer, dialect.create(store, draft, options));
  for (const TensorSpec& spec : draft.tensors) {
    const Bytes old = full ? Bytes() : Bytes(before.tensors.at(spec.name).bytes);
    DW_RETURN_IF_ERROR(writer->add(spec, old, after.tensors.at(spec.name).bytes, nullptr));
  }
  return writer->finish();
}

}  // namespace deltawire::testing
