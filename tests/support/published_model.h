// A model that changes step by step, and comparisons with a chain.
#pragma once

#include "chain/chain.h"
#include "checkpoints.h"
#include "deltawire/publisher.h"
#include "replica/memory_state.h"
#include "support/hooked_store.h"

namespace deltawire::testing {

struct Model {
  std::vector<TestTensor> tensors;
  uint64_t steps = 0;

  // A few dtypes and shapes; `scale` makes it larger.
  static Model make(uint64_t scale = 1) {
    Model model;
    model.tensors = {make_tensor("embed", DType::kBF16, {200 * scale, 64}, 1),
                     make_tensor("layer.0.up", DType::kBF16, {64, 100}, 2),
                     make_tensor("layer.1.up", DType::kBF16, {64, 100}, 3),
                     make_tensor("norm", DType::kF32, {64}, 4),
                     make_tensor("scale", DType::kF32, {}, 5),
                     make_tensor("tables", DType::kU8, {3, 50}, 6)};
    return model;
  }

  void step(double density = 0.02) {
    for (TestTensor& tensor : tensors) {
      if (tensor.name != "tables") change(&tensor, density, ++steps * 100);
    }
  }

  std::vector<PublishTensor> views() const {
    std::vector<PublishTensor> views;
    for (const TestTensor& tensor : tensors) {
      views.push_back({{tensor.name, tensor.dtype, tensor.shape, tensor.bytes}, {}});
    }
    return views;
  }
};

// For publishers whose models add or remove tensors.
inline PublishOptions with_schema_change() { return {.schema_change = true}; }

// Whether a version of the chain equals this model, bit for bit.
inline ::testing::AssertionResult holds(const std::shared_ptr<Store>& store, uint64_t version,
                                        const Model& model) {
  const auto chain = Chain::open(store, {});
  if (!chain.ok()) return ::testing::AssertionFailure() << chain.status().to_string();
  const auto state = fetch_state(*chain, version, nullptr, {});
  if (!state.ok()) return ::testing::AssertionFailure() << state.status().to_string();
  if (state->size() != model.tensors.size()) {
    return ::testing::AssertionFailure() << state->size() << " tensors";
  }
  for (const TestTensor& tensor : model.tensors) {
    const auto found = state->find(tensor.name);
    if (found == state->end() || found->second.dtype != tensor.dtype ||
        found->second.shape != tensor.shape ||
        !std::equal(tensor.bytes.begin(), tensor.bytes.end(), found->second.bytes.begin(),
                    found->second.bytes.end())) {
      return ::testing::AssertionFailure() << "tensor " << tensor.name << " differs";
    }
  }
  return ::testing::AssertionSuccess();
}

inline std::optional<uint64_t> head_of(const std::shared_ptr<Store>& store) {
  const auto chain = Chain::open(store, {});
  return chain.ok() ? chain->head().value() : std::nullopt;
}

}  // namespace deltawire::testing
