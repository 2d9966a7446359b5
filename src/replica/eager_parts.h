// The parts of one delta that are there already, while the others still arrive.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "delta/delta_reader.h"
#include "deltawire/status.h"
#include "replica/tensors.h"

namespace deltawire {

// For the one delta between what is held and the target. One thread.
class EagerParts {
 public:
  // `held`: sorted by name.
  EagerParts(const Target& target, HeldTensors held) : target_(target), held_(std::move(held)) {}

  struct Ready {
    Delta delta;  // what the steps point into
    std::vector<TensorSteps> steps;
  };
  // `part` has been fetched and checked. Entries that patch a whole tensor, as nearly all do, stand
  // by themselves: they can be decoded now. Whether parts fit together is the caller's to check
  // when all are there.
  Result<Ready> add(const PartFile& part);

  // Leaves only steps that were not ready before.
  void erase_done(std::vector<TensorSteps>* steps) const;

 private:
  const Target& target_;
  const HeldTensors held_;
  std::set<size_t> done_;  // tensors, by their number in the schema
};

}  // namespace deltawire
