// One tensor from what is there to what a version says, proven at both ends.
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

// What a version says of its tensors.
struct Target {
  const Manifest& manifest;
  const Schema& schema;
};

// Corruption unless manifest and schema agree with each other: counts, boxes that cover their
// tensors exactly, digests of boxes, the state digest.
Status check_target(const Target& target);

// How one tensor of the target comes about.
struct TensorSteps {
  size_t index = 0;                          // in the target's schema
  const CheckpointTensor* from = nullptr;    // null: the first entry brings it whole
  std::vector<const Delta::Entry*> entries;  // in the order in which they are applied
};

// What is there, by name and form.
struct HeldTensors {
  std::string place;  // for messages
  std::span<const CheckpointTensor> tensors;

  HeldTensors(std::string where, std::span<const CheckpointTensor> what)
      : place(std::move(where)), tensors(what) {}
  HeldTensors(const Checkpoint& checkpoint)  // NOLINT: a checkpoint is one
      : HeldTensors(checkpoint.path().string(), checkpoint.tensors()) {}
};

// For every tensor of the schema, in its order: the steps from `source` through `hops`.
// BaseMismatch when the source does not have what the hops change, or they do not lead to the
// schema.
Result<std::vector<TensorSteps>> collect_steps(const HeldTensors& source,
                                               std::span<const Delta> hops, const Schema& schema);

// The same for a tensor that no step changes: BaseMismatch unless it is what the target says.
Status check_untouched(const TensorSteps& steps, const Target& target, const std::string& place,
                       Bytes data, ThreadPool* pool);

// Takes `data` through the steps. On entry it holds the bytes of `from`, if there is one. First
// what the entries expect is compared with it: BaseMismatch, with `data` untouched, names `place`.
// At the end the result is compared with the target: Corruption when what came through the steps is
// wrong, BaseMismatch when what they left alone is.
Status advance_tensor(const TensorSteps& steps, const Target& target, const std::string& place,
                      MutableBytes data, ThreadPool* pool);

// "sum128: expected 0f..., got 3c..."
std::string digest_difference(const Digest& expected, const Digest& got);
// BaseMismatch: what is at `place` is not what `item` patches.
Status not_the_base(const std::string& place, const Delta::Entry& item, const Digest& got);
// Corruption: `item` was applied to what it expects, and the result is not the target's.
Status not_the_target(const Delta::Entry& item, const Digest& expected, const Digest& got);

}  // namespace deltawire
