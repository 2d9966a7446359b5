// Small models for writing and applying foreign versions.
#pragma once

#include "checkpoints.h"
#include "dialect/dialect.h"
#include "store/memory_store.h"

namespace deltawire::testing {

inline TensorSpec spec_of(const TestTensor& tensor) {
  return {tensor.name, tensor.dtype, tensor.shape};
}

// Writes a version from `before` to `after`; both have the same tensors in the same order.
inline Status write_foreign(const Dialect& dialect, const std::shared_ptr<Store>& store,
                            uint64_t version, const std::vector<TestTensor>& before,
                            const std::vector<TestTensor>& after,
                            const ForeignOptions& options = {}, bool full = false,
                            ThreadPool* pool = nullptr) {
  ForeignDraft draft{.version = version, .base = version - 1, .full = full};
  for (const TestTensor& tensor : after) draft.tensors.push_back(spec_of(tensor));
  DW_ASSIGN_OR_RETURN(const auto writer, dialect.create(store, draft, options));
  for (size_t i = 0; i < after.size(); ++i) {
    const Bytes old_bytes = full ? Bytes() : Bytes(before[i].bytes);
    DW_RETURN_IF_ERROR(writer->add(draft.tensors[i], old_bytes, after[i].bytes, pool));
  }
  return writer->finish();
}

// A model of named tensors with bytes that follow a rule.
struct ForeignModel {
  std::map<std::string, TestTensor> tensors;
  bool operator==(const ForeignModel&) const = default;

  // Bytes by a rule that gives no NaNs and no constant arrays.
  void add(const std::string& name, DType dtype, Shape shape, uint32_t seed = 1) {
    TestTensor tensor{name, dtype, shape, std::vector<uint8_t>(*tensor_size_bytes(dtype, shape))};
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

inline TestTensor* find_held(std::vector<TestTensor>* model, const std::string& name) {
  const auto it = std::ranges::find(*model, name, &TestTensor::name);
  return it == model->end() ? nullptr : &*it;
}
inline TestTensor* find_held(ForeignModel* model, const std::string& name) {
  const auto it = model->tensors.find(name);
  return it == model->tensors.end() ? nullptr : &it->second;
}

// Applies the version to the model; returns the first failure.
template <class Model>
Status apply_to(const ForeignVersion& version, Model* model) {
  const auto& tensors = version.info().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TestTensor* const held = find_held(model, tensors[i].name);
    if (held == nullptr) return not_found("tensor " + tensors[i].name);
    DW_RETURN_IF_ERROR(version.apply(i, spec_of(*held), held->bytes, nullptr));
  }
  return version.check_unchanged();
}
template <class Model>
Status read_version(const Dialect& dialect, Store& store, uint64_t number, Model* model) {
  DW_ASSIGN_OR_RETURN(const auto version, dialect.open(store, number));
  return apply_to(*version, model);
}

// Writes the difference between the models; with `full`, all of `after`.
inline Status write_version(const Dialect& dialect, std::shared_ptr<Store> store, uint64_t number,
                            const ForeignModel& before, const ForeignModel& after,
                            const ForeignOptions& options = {}, bool full = false) {
  ForeignDraft draft{.version = number, .base = number - 1, .full = full};
  for (const auto& [name, tensor] : after.tensors) {
    const auto old = before.tensors.find(name);
    if (old == before.tensors.end() || spec_of(old->second) != spec_of(tensor))
      draft.added.push_back(name);
    if (full || old == before.tensors.end() || old->second != tensor) {
      draft.tensors.push_back(spec_of(tensor));
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

// One tensor of every dtype, odd sizes of packed ones, empty ones, one larger than a block and one
// larger than a chunk of compressed data.
inline std::vector<TestTensor> one_of_each_dtype() {
  std::vector<TestTensor> tensors;
  for (int i = 0; i <= int(DType::kU64); ++i) {
    const auto dtype = DType(i);
    const std::string name = "t." + std::string(dtype_name(dtype));
    tensors.push_back(make_tensor(name, dtype, {4, 6}, uint64_t(i)));
    tensors.push_back(make_tensor(name + ".empty", dtype, {0, 6}, 0));
  }
  tensors.push_back(make_tensor("t.F4.odd", DType::kF4, {3, 2}, 91));
  tensors.push_back(make_tensor("t.F6.odd", DType::kF6_E2M3, {3, 4}, 92));
  tensors.push_back(make_tensor("t.scalar", DType::kF32, {}, 93));
  tensors.push_back(make_tensor("t.block", DType::kBF16, {70001}, 94));
  tensors.push_back(make_tensor("t.chunks", DType::kBF16, {500, 1201}, 95));
  tensors.push_back(make_tensor("t.bytes", DType::kU8, {600001}, 96));
  return tensors;
}

inline std::vector<TestTensor> changed(std::vector<TestTensor> tensors, double density) {
  for (size_t i = 0; i < tensors.size(); ++i) change(&tensors[i], density, 7 + i);
  return tensors;
}

}  // namespace deltawire::testing
