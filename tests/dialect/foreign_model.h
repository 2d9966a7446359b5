// A small model before and after a step, and what a foreign version makes of the one before.
#pragma once

#include "checkpoints.h"
#include "dialect/dialect.h"
#include "store/memory_store.h"
#include "test_files.h"

namespace deltawire::testing {

inline TensorSpec spec_of(const TestTensor& tensor) {
  return {tensor.name, tensor.dtype, tensor.shape};
}

// Writes a version that takes `before` to `after`; both have the same tensors in one order.
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

// What the version makes of `held`; the first failure.
inline Status apply_foreign(const Dialect& dialect, Store& store, uint64_t version,
                            std::vector<TestTensor>* held) {
  DW_ASSIGN_OR_RETURN(const auto opened, dialect.open(store, version));
  const auto& tensors = opened->info().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto it = std::ranges::find(*held, tensors[i].name, &TestTensor::name);
    if (it == held->end()) return not_found("tensor " + tensors[i].name);
    DW_RETURN_IF_ERROR(opened->apply(i, spec_of(*it), it->bytes, nullptr));
  }
  return opened->check_unchanged();
}

inline void expect_same(const std::vector<TestTensor>& a, const std::vector<TestTensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].bytes, b[i].bytes) << a[i].name;
}

// One tensor of every dtype, odd sizes of packed ones, empty ones, one over a block and one over a
// chunk of compressed data.
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
