// Takes one tensor from its held state to a version, and proves both.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "format/manifest.h"
#include "tensor/form.h"

namespace deltawire {

// A version's description of its tensors.
struct Target {
  const Manifest& manifest;
  const Schema& schema;
};

// Corruption unless manifest and schema are consistent: counts, boxes that cover their tensors
// exactly, digests of boxes, state digest.
Status check_target(const Target& target);

// The steps that lead to one tensor of the target.
struct TensorSteps {
  size_t index = 0;                          // in the target's schema
  const CheckpointTensor* from = nullptr;    // null: the first entry brings the tensor whole
  std::vector<const Delta::Entry*> entries;  // in the order in which they are applied
};

// The held tensors, by name and form.
struct HeldTensors {
  std::string place;  // for messages
  std::span<const CheckpointTensor> tensors;

  HeldTensors(std::string where, std::span<const CheckpointTensor> what)
      : place(std::move(where)), tensors(what) {}
  HeldTensors(const Checkpoint& checkpoint)  // NOLINT: implicit on purpose
      : HeldTensors(checkpoint.path().string(), checkpoint.tensors()) {}
};

// The steps from `source` through `hops`, for every tensor of the schema in order. BaseMismatch if
// the source lacks what the hops change, or if they do not lead to the schema.
Result<std::vector<TensorSteps>> collect_steps(const HeldTensors& source,
                                               std::span<const Delta> hops, const Schema& schema);

// For a tensor that no step changes: BaseMismatch unless it matches the target.
Status check_untouched(const TensorSteps& steps, const Target& target, const std::string& place,
                       Bytes data, ThreadPool* pool);

// Applies the steps to `data`, which initially holds the bytes of `from`, if any. First checks that
// `data` is what the entries expect: otherwise returns BaseMismatch, naming `place`, and leaves
// `data` untouched. Finally checks the result: Corruption if bytes that the steps changed are
// wrong, BaseMismatch if other bytes are.
Status advance_tensor(const TensorSteps& steps, const Target& target, const std::string& place,
                      MutableBytes data, ThreadPool* pool);

// "sum128: expected 0f..., got 3c..."
std::string digest_difference(const Digest& expected, const Digest& got);
// BaseMismatch: the bytes at `place` are not the base of `item`.
Status not_the_base(const std::string& place, const Delta::Entry& item, const Digest& got);
// Corruption: `item` was applied to its base, but the result is not the target.
Status not_the_target(const Delta::Entry& item, const Digest& expected, const Digest& got);

}  // namespace deltawire
